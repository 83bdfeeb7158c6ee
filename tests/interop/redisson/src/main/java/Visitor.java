import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;

import com.eclipsesource.json.JsonObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import org.redisson.api.RLock;

/**
 * Counts in a file under the lock until told that it is over, as tests/interop/visits.py does: the count is read and
 * written without any protection, and a line has the times of enter and leave.
 */
final class Visitor {
    private final RLock lock;
    private final Path directory;
    private int visits;

    Visitor(RLock lock, JsonObject command) {
        this.lock = lock;
        this.directory = Path.of(command.getString("directory", ""));
    }

    int visits() throws IOException, InterruptedException {
        while (!Files.exists(directory.resolve("over"))) {
            lock.lock();
            try {
                visit();
            } finally {
                lock.unlock();
            }
        }
        return visits;
    }

    private void visit() throws IOException, InterruptedException {
        double entered = LockService.now();
        Path count = directory.resolve("count");
        int seen = Integer.parseInt(Files.readString(count));
        Thread.sleep(1);
        Files.writeString(count, String.valueOf(seen + 1));
        visits++;
        String line = String.format(Locale.ROOT, "java %.6f %.6f%n", entered, LockService.now());
        Files.writeString(directory.resolve("visits"), line, CREATE, APPEND);
    }
}
