import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.stream.Stream;

/** A thread that is kept: to Redisson, it is the owner of a lock. Does what is put into its queue. */
final class Caller extends Thread {
    final BlockingQueue<Runnable> work = new LinkedBlockingQueue<>();

    Caller(String name) {
        super(name);
        setDaemon(true);
        start();
    }

    @Override
    public void run() {
        try {
            while (true) {
                work.take().run();
            }
        } catch (InterruptedException interrupted) {
            currentThread().interrupt();
        }
    }

    /** Whether the thread waits for a message: after its last look, Redisson parks it at a semaphore or a latch. */
    boolean parked() {
        return Stream.of(getStackTrace())
                .map(StackTraceElement::getClassName)
                .anyMatch(name -> name.equals(Semaphore.class.getName()) || name.endsWith(".ReclosableLatch"));
    }
}
