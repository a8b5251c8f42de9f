import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The verbs of those who ask and answer through topics, and of an admin who moves a group. */
final class Requests {
    /** A consumer that answers every message with its body and a suffix. */
    private static final class Answerer {
        final DefaultMQPushConsumer consumer;
        final DefaultMQProducer producer;

        Answerer(DefaultMQPushConsumer consumer, DefaultMQProducer producer) {
            this.consumer = consumer;
            this.producer = producer;
        }

        void shutdown() {
            consumer.shutdown();
            producer.shutdown();
        }
    }

    private final Map<String, Answerer> answerers = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Verb> verbs) {
        verbs.put("answerer", this::start);
        verbs.put("request", this::request);
        verbs.put("reset", this::reset);
    }

    void clear() {
        answerers.values().forEach(Answerer::shutdown);
        answerers.clear();
    }

    private void start(Line command, Driver.Answer answer) throws Exception {
        String name = command.get("name");
        DefaultMQProducer producer = producer(command, name + "-answers");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.get("group"));
        consumer.setNamesrvAddr(command.get("namesrv"));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(name + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setNamespace(command.get("namespace", null));
        consumer.setPullTimeDelayMillsWhenException(100);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.subscribe(command.get("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String text = new String(message.getBody(), StandardCharsets.UTF_8) + command.get("suffix");
                    producer.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)));
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        answerers.put(name, new Answerer(consumer, producer));
    }

    private static DefaultMQProducer producer(Line command, String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(name);
        producer.setNamesrvAddr(command.get("namesrv"));
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName(name + System.nanoTime());
        producer.setNamespace(command.get("namespace", null));
        producer.start();
        return producer;
    }

    /** One request per line of "bodies", each waited for; a row per answer. */
    private void request(Line command, Driver.Answer answer) throws Exception {
        DefaultMQProducer producer = producer(command, command.get("name"));
        try {
            for (String body : command.lines("bodies")) {
                Message message = new Message(command.get("topic"), body.getBytes(StandardCharsets.UTF_8));
                Message reply = producer.request(message, command.number("withinMs"));
                answer.add(answer.row().with("body", new String(reply.getBody(), StandardCharsets.UTF_8)));
            }
        } finally {
            producer.shutdown();
        }
    }

    /** As the admin tool moves a group to a time; a row per queue. */
    private void reset(Line command, Driver.Answer answer) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(command.get("namesrv"));
        admin.setInstanceName("admin" + System.nanoTime());
        admin.start();
        try {
            Map<MessageQueue, Long> offsets = admin.resetOffsetByTimestamp(
                command.get("topic"), command.get("group"), Long.parseLong(command.get("time")), true);
            offsets.forEach((queue, offset) ->
                answer.add(answer.row().with("queue", queue.getQueueId()).with("offset", offset)));
        } finally {
            admin.shutdown();
        }
    }
}
