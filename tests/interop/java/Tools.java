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

    private void run(Line command, Driver.Answer answer) throws Exception {
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        try (PrintStream out = new PrintStream(printed, true, "UTF-8")) {
            System.setOut(out);
            MQAdminStartup.main0(command.lines("words").toArray(new String[0]), null);
        } finally {
            System.setOut(before);
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
