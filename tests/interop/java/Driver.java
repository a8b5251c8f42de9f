import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * The real RocketMQ client behind a pipe: commands come line by line on stdin, answers leave on stdout, and one
 * process serves a whole test session. It decides nothing: it calls the client's public methods and says what they
 * returned or threw. The end of stdin ends it.
 */
public final class Driver {
    /** What one verb does; rows it adds are printed before the closing "ok". */
    interface Verb {
        void run(Line command, Answer answer) throws Exception;
    }

    /** Rows of the command that is being answered. */
    static final class Answer {
        private final String number;
        private final PrintStream out;

        Answer(String number, PrintStream out) {
            this.number = number;
            this.out = out;
        }

        Line row() {
            return new Line(number, "row");
        }

        void add(Line row) {
            row.printTo(out);
        }
    }

    private static final Map<String, Verb> VERBS = new LinkedHashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        // Whatever a library prints must not come between the answers.
        System.setOut(System.err);
        Senders senders = new Senders();
        Receivers receivers = new Receivers();
        senders.register(VERBS);
        receivers.register(VERBS);
        Requests requests = new Requests();
        requests.register(VERBS);
        new Allocations().register(VERBS);
        new Tools().register(VERBS);
        Admins admins = new Admins();
        admins.register(VERBS);
        VERBS.put("clear", (command, answer) -> {
            admins.clear();
            requests.clear();
            receivers.clear();
            senders.clear();
        });
        Hurry.thisThread();
        new Line("0", "ok").with("java", System.getProperty("java.version")).printTo(out);
        out.flush();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            answer(Line.parse(text), out);
            out.flush();
        }
        // Clients leave threads behind; the test has ended, nobody waits for them.
        Runtime.getRuntime().halt(0);
    }

    private static void answer(Line command, PrintStream out) {
        try {
            Verb verb = VERBS.get(command.word);
            if (verb == null) {
                throw new IllegalArgumentException("no verb " + command.word);
            }
            verb.run(command, new Answer(command.number, out));
            new Line(command.number, "ok").printTo(out);
        } catch (Throwable error) {
            error.printStackTrace();
            new Line(command.number, "error")
                .with("type", error.getClass().getSimpleName())
                .with("code", codeOf(error))
                .with("message", messageOf(error))
                .printTo(out);
        }
    }

    /** The response code of the broker, however deep the client has wrapped it; -1 when there is none. */
    private static int codeOf(Throwable error) {
        int code = -1;
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                return ((MQBrokerException) cause).getResponseCode();
            }
            if (cause instanceof MQClientException && ((MQClientException) cause).getResponseCode() > 0) {
                code = ((MQClientException) cause).getResponseCode();
            }
        }
        return code;
    }

    private static String messageOf(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(cause.getMessage()).append('\n');
        }
        return text.toString().trim();
    }

    private Driver() {
    }
}
