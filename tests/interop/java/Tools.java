import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.Map;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The verbs of an admin: mqadmin inside this process, and what no command of it asks. */
final class Tools {
    void register(Map<String, Driver.Verb> verbs) {
        verbs.put("mqadmin", this::run);
        verbs.put("consumer-offsets", this::offsets);
    }

    /** A command's client ends within three seconds, when its event thread looks up by itself. */
    private void hurry(Thread caller) {
        Thread hurrying = new Thread(() -> {
            while (caller.isAlive() && hurried == Thread.currentThread()) {
                for (Thread thread : Thread.getAllStackTraces().keySet()) {
                    if (thread.getName().startsWith("NettyEventExecutor")) {
                        thread.interrupt();
                    }
                }
                java.util.concurrent.locks.LockSupport.parkNanos(50_000_000L);
            }
        });
        hurrying.setDaemon(true);
        hurried = hurrying;
        hurrying.start();
    }

    private volatile Thread hurried;

    private void run(Line command, Driver.Answer answer) throws Exception {
        // The logger tells how it sets itself up, once: that is no word of the command.
        new DefaultMQAdminExt();
        PrintStream before = System.out;
        PrintStream errors = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        try (PrintStream out = new PrintStream(printed, true, "UTF-8")) {
            System.setOut(out);
            System.setErr(out);
            hurry(Thread.currentThread());
            MQAdminStartup.main0(command.lines("words").toArray(new String[0]), null);
        } finally {
            hurried = null;
            System.setOut(before);
            System.setErr(errors);
        }
        answer.add(answer.row().with("printed", printed.toString("UTF-8")));
    }

    /** What each running member of a group says of its offsets. */
    private void offsets(Line command, Driver.Answer answer) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(command.get("namesrv"));
        admin.setInstanceName("admin" + System.nanoTime());
        admin.start();
        try {
            admin.getConsumeStatus(command.get("topic"), command.get("group"), "").forEach((member, offsets) ->
                offsets.forEach((queue, offset) -> answer.add(answer.row()
                    .with("member", member).with("queue", queue.getQueueId()).with("offset", offset))));
        } finally {
            admin.shutdown();
        }
    }
}
