import java.util.Arrays;
import java.util.function.BooleanSupplier;

/**
 * Wakes the threads that a shutdown of RocketMQ waits for: those of channel events look up every three seconds.
 * As a main class it runs the one that its first argument names, and wakes them when that shuts down.
 */
public final class Hurry {
    private static final String EVENTS = "NettyEventExecutor";
    private static final int EVERY_MS = 50;

    private Hurry() {
    }

    public static void main(String[] args) throws ReflectiveOperationException {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            while (wake(() -> true) > 0) {
                pause();
            }
        }));
        String[] rest = Arrays.copyOfRange(args, 1, args.length);
        Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    /** From now on, whenever this thread shuts a client down. */
    static void thisThread() {
        Thread closing = Thread.currentThread();
        Thread waker = new Thread(() -> {
            BooleanSupplier waits = () -> calls(closing, "org.apache.rocketmq.remoting.netty.NettyRemotingClient", "shutdown");
            while (true) {
                if (waits.getAsBoolean()) {
                    wake(waits);
                }
                pause();
            }
        });
        waker.setDaemon(true);
        waker.start();
    }

    /**
     * Interrupts those that wait for an event; who works on one is left alone. How many there are. The next client
     * may have begun since the look at the last one, and an interrupt would cost it its channel: so {@code waits} is
     * asked before each.
     */
    private static int wake(BooleanSupplier waits) {
        Thread[] threads = new Thread[Thread.activeCount() + 64];
        int count = Thread.enumerate(threads);
        int found = 0;
        for (int number = 0; number < count; number++) {
            if (threads[number].getName().contains(EVENTS)) {
                found++;
                if (polls(threads[number].getStackTrace()) && waits.getAsBoolean()) {
                    threads[number].interrupt();
                }
            }
        }
        return found;
    }

    private static boolean polls(StackTraceElement[] stack) {
        for (int at = 1; at < stack.length; at++) {
            if (stack[at].getClassName().contains(EVENTS)) {
                return stack[at - 1].getMethodName().equals("poll");
            }
        }
        return false;
    }

    private static boolean calls(Thread thread, String className, String method) {
        return thread.getState() != Thread.State.RUNNABLE && Arrays.stream(thread.getStackTrace())
            .anyMatch(frame -> frame.getClassName().equals(className) && frame.getMethodName().equals(method));
    }

    private static void pause() {
        try {
            Thread.sleep(EVERY_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
