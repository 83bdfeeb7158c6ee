import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.Redisson;
import org.redisson.RedissonFairLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Callers with a lock of their own each, or reading under one name, or waiting for one fair lock, on one Redisson client
 * with its default settings for each server; where there are several, a lock is a RedissonRedLock of all.
 *
 * <p>Each line of the input is a request: {"urls", "callers", "warm_up", "seconds", "asynchronous", "kind"}; each line
 * of the output answers one. Callers are threads that call lock() and unlock(), or, asynchronously, chains of lockAsync() and
 * unlockAsync(), each as an owner of its own.
 */
public final class OwnLocks {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final AtomicLong sections = new AtomicLong();
    private final AtomicInteger overlaps = new AtomicInteger();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private volatile boolean over;

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JSON.writeValueAsString(new OwnLocks().answer(JSON.readTree(line))));
        }
    }

    private Map<String, Object> answer(JsonNode request) throws Exception {
        List<RedissonClient> clients = new ArrayList<>();
        try {
            for (JsonNode url : request.get("urls")) {
                Config config = new Config();
                config.useSingleServer().setAddress(url.asText());
                clients.add(Redisson.create(config));
            }
            List<Thread> threads = start(clients, request);
            Thread.sleep((long) (request.get("warm_up").asDouble() * 1000));
            long before = sections.get();
            long began = System.nanoTime();
            Thread.sleep((long) (request.get("seconds").asDouble() * 1000));
            long counted = sections.get() - before;
            double seconds = (System.nanoTime() - began) / 1e9;
            over = true;
            for (Thread thread : threads) {
                thread.join(5000);
            }
            Thread.sleep(200); // Chains end with the section that they are in.
            Throwable error = failure.get();
            return Map.of(
                    "sections", counted,
                    "seconds", seconds,
                    "overlaps", overlaps.get(),
                    "problem", error == null ? "" : error.toString());
        } finally {
            clients.forEach(RedissonClient::shutdown);
        }
    }

    private List<Thread> start(List<RedissonClient> clients, JsonNode request) {
        boolean asynchronous = request.get("asynchronous").asBoolean();
        AtomicInteger together = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int caller = 0; caller < request.get("callers").asInt(); caller++) {
            RLock lock = lock(clients, request.get("kind").asText(), caller);
            AtomicInteger inside = lock instanceof RedissonFairLock ? together : new AtomicInteger();
            if (asynchronous) {
                chain(lock, caller + 1, inside);
            } else {
                Thread thread = new Thread(() -> loop(lock, inside), "caller " + caller);
                thread.setDaemon(true);
                thread.start();
                threads.add(thread);
            }
        }
        return threads;
    }

    private static RLock lock(List<RedissonClient> clients, String kind, int caller) {
        if (clients.size() > 1) {
            return new RedissonRedLock(
                    clients.stream().map(client -> lock(client, kind, caller)).toArray(RLock[]::new));
        }
        return lock(clients.get(0), kind, caller);
    }

    private static RLock lock(RedissonClient client, String kind, int caller) {
        switch (kind) {
            case "reading":
                return client.getReadWriteLock("report").readLock();
            case "fair":
                return client.getFairLock("passed");
            default:
                return client.getLock("own:" + caller);
        }
    }

    private void loop(RLock lock, AtomicInteger inside) {
        try {
            while (!over) {
                lock.lock();
                try {
                    visit(inside);
                } finally {
                    lock.unlock();
                }
                sections.incrementAndGet();
            }
        } catch (RuntimeException error) {
            failure.compareAndSet(null, error);
        }
    }

    private void chain(RLock lock, long owner, AtomicInteger inside) {
        lock.lockAsync(owner)
                .thenCompose(locked -> {
                    visit(inside);
                    return lock.unlockAsync(owner);
                })
                .whenComplete((unlocked, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    } else {
                        sections.incrementAndGet();
                        if (!over) {
                            chain(lock, owner, inside);
                        }
                    }
                });
    }

    private void visit(AtomicInteger inside) {
        if (inside.incrementAndGet() != 1) {
            overlaps.incrementAndGet();
        }
        inside.decrementAndGet();
    }
}
