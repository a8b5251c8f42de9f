import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The verbs of those who send, and of those who ask about queues. */
final class Senders {
    private static final int SEND_WITHIN_MS = 15_000;

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Verb> verbs) {
        verbs.put("producer", this::start);
        verbs.put("send", this::send);
        verbs.put("recall", this::recall);
        verbs.put("names", Senders::names);
        verbs.put("queues", this::queues);
        verbs.put("topic", this::topic);
        verbs.put("stop-producer", (command, answer) -> producers.remove(command.get("name")).shutdown());
    }

    void clear() {
        producers.values().forEach(DefaultMQProducer::shutdown);
        producers.clear();
    }

    private void start(Line command, Driver.Answer answer) throws Exception {
        String name = command.get("name");
        DefaultMQProducer producer = command.has("transaction")
            ? transactional(command)
            : new DefaultMQProducer(command.get("group"), command.hook(), command.has("trace"), null);
        producer.setNamesrvAddr(command.get("namesrv"));
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName(name + System.nanoTime());
        producer.setNamespace(command.get("namespace", null));
        producer.setVipChannelEnabled(command.has("vip"));
        // Its own three seconds are short for the first send of a JVM on a busy machine.
        producer.setSendMsgTimeout(SEND_WITHIN_MS);
        producer.start();
        producers.put(name, producer);
    }

    /** Names as a client in a namespace gives them to brokers, and back as it gives them to users. */
    private static void names(Line command, Driver.Answer answer) {
        ClientConfig client = new ClientConfig();
        client.setNamespace(command.get("namespace"));
        for (String name : command.lines("names")) {
            String wrapped = client.withNamespace(name);
            answer.add(answer.row().with("wrapped", wrapped)
                .with("back", client.withoutNamespace(wrapped)).with("plain", client.withoutNamespace(name)));
        }
    }

    /** A transaction is named by its body: "local.BODY" and "checked.BODY" say what becomes of it, else it commits. */
    private static TransactionMQProducer transactional(Line command) {
        Map<String, String> local = command.under("local.");
        Map<String, String> checked = command.under("checked.");
        TransactionMQProducer producer = new TransactionMQProducer(command.get("group"), command.hook());
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state(local, message);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return state(checked, message);
            }
        });
        return producer;
    }

    private static LocalTransactionState state(Map<String, String> states, Message message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        return LocalTransactionState.valueOf(states.getOrDefault(body, "COMMIT_MESSAGE"));
    }

    /** One message per line of "bodies"; one row per result, none for one-way sends. */
    private void send(Line command, Driver.Answer answer) throws Exception {
        DefaultMQProducer producer = producers.get(command.get("producer"));
        List<Message> messages = messages(command);
        List<SendResult> results = new ArrayList<>();
        switch (command.get("how")) {
            case "sync":
                for (Message message : messages) {
                    results.add(one(producer, message, command));
                }
                break;
            case "async":
                results.addAll(async(producer, messages));
                break;
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
                break;
            case "batch":
                results.add(producer.send(messages));
                break;
            case "ordered":
                for (Message message : messages) {
                    results.add(producer.send(message, (queues, message1, key) ->
                        queues.get((Integer) key % queues.size()), command.number("key")));
                }
                break;
            case "transaction":
                for (Message message : messages) {
                    results.add(((TransactionMQProducer) producer).sendMessageInTransaction(message, null));
                }
                break;
            default:
                throw new IllegalArgumentException(command.get("how"));
        }
        for (SendResult result : results) {
            answer.add(row(answer.row(), result));
        }
    }

    private static SendResult one(DefaultMQProducer producer, Message message, Line command) throws Exception {
        if (command.has("queue")) {
            MessageQueue queue =
                new MessageQueue(command.get("topic"), command.get("broker"), command.number("queue"));
            return producer.send(message, queue);
        }
        return producer.send(message);
    }

    private static List<SendResult> async(DefaultMQProducer producer, List<Message> messages) throws Exception {
        SendResult[] results = new SendResult[messages.size()];
        AtomicReference<Throwable> failed = new AtomicReference<>();
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            int place = i;
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[place] = result;
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failed.set(error);
                    open.countDown();
                }
            });
        }
        if (!open.await(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.getCount() + " callbacks never came");
        }
        if (failed.get() != null) {
            throw new IllegalStateException("an asynchronous send failed", failed.get());
        }
        return java.util.Arrays.asList(results);
    }

    private static List<Message> messages(Line command) {
        List<Message> messages = new ArrayList<>();
        for (String body : command.lines("bodies")) {
            Message message = new Message(
                command.get("topic"), command.get("tags", ""), command.get("keys", ""),
                body.getBytes(StandardCharsets.UTF_8));
            if (command.has("delay")) {
                message.setDelayTimeLevel(command.number("delay"));
            }
            command.under("property.").forEach((name, value) -> MessageAccessor.putProperty(message, name, value));
            messages.add(message);
        }
        return messages;
    }

    /** Takes a timer back; 4.9 has neither handles nor this call. */
    private void recall(Line command, Driver.Answer answer) throws Exception {
        DefaultMQProducer producer = producers.get(command.get("producer"));
        try {
            Object id = producer.getClass().getMethod("recallMessage", String.class, String.class)
                .invoke(producer, command.get("topic"), command.get("handle"));
            answer.add(answer.row().with("id", id));
        } catch (java.lang.reflect.InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }

    private static String handle(SendResult result) {
        try {
            Object handle = result.getClass().getMethod("getRecallHandle").invoke(result);
            return handle == null ? "" : handle.toString();
        } catch (ReflectiveOperationException error) {
            return "";
        }
    }

    private static Line row(Line row, SendResult result) {
        return row.with("status", result.getSendStatus())
            .with("id", result.getMsgId())
            .with("offsetId", result.getOffsetMsgId())
            .with("broker", result.getMessageQueue().getBrokerName())
            .with("queue", result.getMessageQueue().getQueueId())
            .with("offset", result.getQueueOffset())
            .with("handle", handle(result))
            .with("region", result.getRegionId())
            .with("trace", result.isTraceOn());
    }

    /** The queues a producer may send to, each with what the broker says about its offsets. */
    private void queues(Line command, Driver.Answer answer) throws Exception {
        DefaultMQProducer producer = producers.get(command.get("producer"));
        for (MessageQueue queue : producer.fetchPublishMessageQueues(command.get("topic"))) {
            answer.add(answer.row()
                .with("broker", queue.getBrokerName())
                .with("queue", queue.getQueueId())
                .with("min", producer.minOffset(queue))
                .with("max", producer.maxOffset(queue))
                .with("earliest", producer.earliestMsgStoreTime(queue))
                .with("search", producer.searchOffset(queue, Long.parseLong(command.get("time", "0")))));
        }
    }

    /** Creates a topic at one broker, as the admin tool does. */
    private void topic(Line command, Driver.Answer answer) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(command.get("namesrv"));
        admin.setInstanceName("admin" + System.nanoTime());
        admin.start();
        try {
            int queues = command.number("queues");
            TopicConfig topic = new TopicConfig(command.get("topic"), queues, queues, command.number("perm", 6));
            admin.createAndUpdateTopicConfig(command.get("broker"), topic);
        } finally {
            admin.shutdown();
        }
    }
}
