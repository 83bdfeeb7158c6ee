import com.eclipsesource.json.Json;
import com.eclipsesource.json.JsonObject;
import com.eclipsesource.json.JsonValue;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.StreamSupport;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;

/**
 * Redisson's locks and semaphores as a service: a command per line of the input, an answer per line of the output,
 * both in JSON.
 *
 * <p>A command is {"id", "call", "client", "thread", "name", ...}. The service makes the call of the object with that
 * name in the numbered thread of the client, and keeps the thread; so a call that blocks blocks no other thread, and
 * answers come in any order. A command with a "half" is for that half of a read-write lock, "read" or "write"; one with
 * "names" is for several locks as one, in that order; one with "clients" is for their RedissonRedLock. The "kind"
 * "counted" is the counting semaphore, "latch" the count-down latch. The service does "connect", "shutdown" and
 * "parked" (whether the thread waits for a message) at once. Durations are milliseconds. An answer is {"id", "value" or
 * "error" and "message", "began", "ended"}; the last two are seconds on the clock that System.nanoTime() and Python's
 * time.monotonic() read.
 */
public final class LockService {
    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    private final Map<String, Caller> callers = new ConcurrentHashMap<>();
    private final PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        LockService service = new LockService();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            service.take(Json.parse(line).asObject());
        }
        Runtime.getRuntime().halt(0); // Python has gone; clients and threads need no end of their own.
    }

    static double now() {
        return System.nanoTime() / 1e9;
    }

    private void take(JsonObject command) {
        switch (command.getString("call", "")) {
            case "connect", "shutdown", "parked" -> answer(command);
            default -> caller(command).work.add(() -> answer(command));
        }
    }

    private Caller caller(JsonObject command) {
        String key = command.getString("client", "") + " thread " + command.getInt("thread", 0);
        return callers.computeIfAbsent(key, Caller::new);
    }

    private void answer(JsonObject command) {
        JsonObject answer = new JsonObject().add("id", command.get("id")).add("began", now());
        try {
            answer.add("value", done(command));
        } catch (Exception error) {
            answer.add("error", error.getClass().getSimpleName()).add("message", String.valueOf(error.getMessage()));
        }
        answer.add("ended", now());
        synchronized (output) {
            output.println(answer);
        }
    }

    private JsonValue done(JsonObject command) throws Exception {
        String client = command.getString("client", "");
        switch (command.getString("call", "")) {
            case "connect" -> clients.put(client, Redisson.create(config(command)));
            case "shutdown" -> clients.remove(client).shutdown();
            case "parked" -> {
                return Json.value(caller(command).parked());
            }
            case "owner" -> { // The field of the lock's hash, as Redisson makes it.
                return Json.value(clients.get(client).getId() + ":" + Thread.currentThread().getId());
            }
            default -> {
                return called(command, clients.get(client));
            }
        }
        return Json.NULL;
    }

    private JsonValue called(JsonObject command, RedissonClient client) throws Exception {
        String name = command.getString("name", "");
        switch (command.getString("kind", "")) {
            case "counted" -> {
                return called(command, client.getSemaphore(name));
            }
            case "latch" -> {
                return called(command, client.getCountDownLatch(name));
            }
            default -> {
                return switch (command.getString("call", "")) {
                    case "tryAcquire", "release", "trySetPermits", "setPermits", "addPermits",
                            "availablePermits", "acquiredPermits", "getPermits" ->
                        called(command, client.getPermitExpirableSemaphore(name));
                    default -> called(command, lock(client, command));
                };
            }
        }
    }

    private RLock lock(RedissonClient client, JsonObject command) {
        if (command.get("clients") != null) {
            return new RedissonRedLock(StreamSupport.stream(command.get("clients").asArray().spliterator(), false)
                    .map(each -> clients.get(each.asString()).getLock(command.getString("name", "")))
                    .toArray(RLock[]::new));
        }
        if (command.get("names") != null) {
            return client.getMultiLock(StreamSupport.stream(command.get("names").asArray().spliterator(), false)
                    .map(name -> client.getLock(name.asString()))
                    .toArray(RLock[]::new));
        }
        String name = command.getString("name", "");
        String second = command.getString("second", null);
        if (second != null) {
            return client.getMultiLock(client.getLock(name), client.getLock(second));
        }
        return switch (command.getString("half", "")) {
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            default -> client.getLock(name);
        };
    }

    private JsonValue called(JsonObject command, RLock lock) throws Exception {
        long wait = command.getLong("wait", 0);
        long lease = command.getLong("lease", -1); // Redisson's word for: renewed by the watchdog.
        String call = command.getString("call", "");
        switch (call) {
            case "lock" -> lock.lock(lease, TimeUnit.MILLISECONDS);
            case "unlock" -> lock.unlock();
            default -> {
                return switch (call) {
                    case "tryLock" -> Json.value(lock.tryLock(wait, lease, TimeUnit.MILLISECONDS));
                    case "forceUnlock" -> Json.value(lock.forceUnlock());
                    case "isLocked" -> Json.value(lock.isLocked());
                    case "isHeldByCurrentThread" -> Json.value(lock.isHeldByCurrentThread());
                    case "getHoldCount" -> Json.value(lock.getHoldCount());
                    case "remainTimeToLive" -> Json.value(lock.remainTimeToLive());
                    case "visit" -> Json.value(new Visitor(lock, command).visits());
                    default -> throw new IllegalArgumentException("no such call: " + call);
                };
            }
        }
        return Json.NULL;
    }

    // By reflection where the oldest version has no such method.
    private JsonValue called(JsonObject command, RPermitExpirableSemaphore semaphore) throws Exception {
        long wait = command.getLong("wait", 0);
        long lease = command.getLong("lease", -1); // Redisson's word for: does not expire.
        int permits = command.getInt("permits", 0);
        String call = command.getString("call", "");
        switch (call) {
            case "release" -> semaphore.release(command.getString("permit", ""));
            case "addPermits" -> semaphore.addPermits(permits);
            case "setPermits" -> RPermitExpirableSemaphore.class.getMethod(call, int.class).invoke(semaphore, permits);
            default -> {
                return switch (call) {
                    case "tryAcquire" -> Json.value(semaphore.tryAcquire(wait, lease, TimeUnit.MILLISECONDS));
                    case "trySetPermits" -> Json.value(semaphore.trySetPermits(permits));
                    case "availablePermits" -> Json.value(semaphore.availablePermits());
                    default -> Json.value((int) RPermitExpirableSemaphore.class.getMethod(call).invoke(semaphore));
                };
            }
        }
        return Json.NULL;
    }

    private JsonValue called(JsonObject command, RSemaphore semaphore) throws Exception {
        int permits = command.getInt("permits", 1);
        String call = command.getString("call", "");
        switch (call) {
            case "release" -> semaphore.release(permits);
            case "addPermits" -> semaphore.addPermits(permits);
            case "acquire" -> semaphore.acquire(permits);
            default -> {
                return switch (call) {
                    case "tryAcquire" -> Json.value(semaphore.tryAcquire(permits));
                    case "trySetPermits" -> Json.value(semaphore.trySetPermits(permits));
                    case "drainPermits" -> Json.value(semaphore.drainPermits());
                    case "availablePermits" -> Json.value(semaphore.availablePermits());
                    default -> throw new IllegalArgumentException("no such call: " + call);
                };
            }
        }
        return Json.NULL;
    }

    private JsonValue called(JsonObject command, RCountDownLatch latch) throws Exception {
        String call = command.getString("call", "");
        switch (call) {
            case "countDown" -> latch.countDown();
            case "await" -> latch.await();
            default -> {
                return switch (call) {
                    case "trySetCount" -> Json.value(latch.trySetCount(command.getInt("count", 1)));
                    case "getCount" -> Json.value(latch.getCount());
                    case "delete" -> Json.value(latch.delete());
                    default -> throw new IllegalArgumentException("no such call: " + call);
                };
            }
        }
        return Json.NULL;
    }

    private static Config config(JsonObject command) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.setLockWatchdogTimeout(command.getLong("watchdog", 30_000));
        String address = command.getString("address", "");
        if (command.getBoolean("cluster", false)) {
            config.useClusterServers().addNodeAddress(address).setReadMode(ReadMode.MASTER);
        } else {
            config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(4).setConnectionPoolSize(16);
        }
        return config;
    }
}
