import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The verbs of those who receive. */
final class Receivers {
    /** A push consumer and all it has been given, in the order of delivery. */
    private static final class Inbox {
        final DefaultMQPushConsumer consumer;
        private final List<MessageExt> messages = new ArrayList<>();

        Inbox(DefaultMQPushConsumer consumer) {
            this.consumer = consumer;
        }

        synchronized void add(List<MessageExt> delivered) {
            messages.addAll(delivered);
            notifyAll();
        }

        /** All so far, once there are that many or the time is over. */
        synchronized List<MessageExt> await(int count, long withinMs) throws InterruptedException {
            long deadline = System.nanoTime() + withinMs * 1_000_000;
            for (long left = withinMs; messages.size() < count && left > 0;
                 left = (deadline - System.nanoTime()) / 1_000_000) {
                wait(left);
            }
            return new ArrayList<>(messages);
        }
    }

    private final Map<String, Inbox> inboxes = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Verb> verbs) {
        verbs.put("consumer", this::start);
        verbs.put("received", this::received);
        verbs.put("assigned", this::assigned);
        verbs.put("commit", this::commit);
        verbs.put("pull", this::pull);
        verbs.put("select", this::select);
        verbs.put("stop-consumer", (command, answer) -> inboxes.remove(command.get("name")).consumer.shutdown());
    }

    void clear() {
        inboxes.values().forEach(inbox -> inbox.consumer.shutdown());
        inboxes.clear();
    }

    private void start(Line command, Driver.Answer answer) throws Exception {
        String name = command.get("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            command.get("group"), command.hook(), Allocations.strategy(command), command.has("trace"), null);
        consumer.setNamesrvAddr(command.get("namesrv"));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(name + (command.has("named") ? "" : System.nanoTime()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + command.get("from", "FIRST_OFFSET")));
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setNamespace(command.get("namespace", null));
        consumer.setVipChannelEnabled(command.has("vip"));
        // 5.4.0 drops the heartbeat with a new subscription version when another one is just under way, and
        // then may not pull until the next, by default 30 s later; on every broker.
        consumer.setHeartbeatBrokerInterval(1_000);
        // The first heartbeat makes the retry topic; who asked for its route just before asks again in 30 s.
        consumer.setPollNameServerInterval(1_000);
        if (command.has("broadcast")) {
            broadcast(consumer);
        }
        if (command.has("pop")) {
            pop(consumer);
        }
        Inbox inbox = new Inbox(consumer);
        if (command.has("tries")) {
            consumer.setMaxReconsumeTimes(command.number("tries"));
            consumer.setSuspendCurrentQueueTimeMillis(100);
        }
        listen(consumer, inbox, command.has("orderly"), command.number("failing", 0));
        for (String topic : command.lines("topics")) {
            if (command.has("sql")) {
                consumer.subscribe(topic, MessageSelector.bySql(command.get("sql")));
            } else {
                consumer.subscribe(topic, command.get("tags", "*"));
            }
        }
        try {
            consumer.start();
        } catch (Exception error) {
            consumer.shutdown();
            throw error;
        }
        inboxes.put(name, inbox);
    }

    /** By reflection: the enum MessageModel lies in another package in 4.9 than in 5.x. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws ReflectiveOperationException {
        Object current = DefaultMQPushConsumer.class.getMethod("getMessageModel").invoke(consumer);
        for (Object model : current.getClass().getEnumConstants()) {
            if (((Enum<?>) model).name().equals("BROADCASTING")) {
                DefaultMQPushConsumer.class.getMethod("setMessageModel", current.getClass()).invoke(consumer, model);
            }
        }
    }

    /** Whoever leaves the assignment to the broker pops where the broker says so; 4.9 knows nothing of it. */
    private static void pop(DefaultMQPushConsumer consumer) throws ReflectiveOperationException {
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
    }

    /** Messages that were tried fewer than "failing" times are wanted again later. */
    private static void listen(DefaultMQPushConsumer consumer, Inbox inbox, boolean orderly, int failing) {
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                inbox.add(messages);
                return messages.get(0).getReconsumeTimes() < failing
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                inbox.add(messages);
                return messages.get(0).getReconsumeTimes() < failing
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
    }

    private void received(Line command, Driver.Answer answer) throws Exception {
        Inbox inbox = inboxes.get(command.get("name"));
        for (MessageExt message : inbox.await(command.number("count"), command.number("withinMs"))) {
            answer.add(row(answer.row(), message));
        }
    }

    private static Line row(Line row, MessageExt message) {
        return row.with("topic", message.getTopic())
            .with("queue", message.getQueueId())
            .with("offset", message.getQueueOffset())
            .with("id", message.getMsgId())
            .with("tags", message.getTags())
            .with("keys", message.getKeys())
            .with("reconsumed", message.getReconsumeTimes())
            .with("body", new String(message.getBody(), StandardCharsets.UTF_8))
            .with("bornHost", message.getBornHostString())
            .with("cluster", message.getProperty("CLUSTER"));
    }

    /** The queues that rebalance has given to a consumer by now, retry topics included. */
    private void assigned(Line command, Driver.Answer answer) {
        for (MessageQueue queue : queuesOf(command)) {
            answer.add(answer.row().with("topic", queue.getTopic()).with("queue", queue.getQueueId()));
        }
    }

    /** Tells the broker the offsets now instead of within five seconds. */
    private void commit(Line command, Driver.Answer answer) {
        inboxes.get(command.get("name")).consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
    }

    private Collection<MessageQueue> queuesOf(Line command) {
        return new ArrayList<>(inboxes.get(command.get("name")).consumer
            .getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
    }

    /** All messages of a topic from the first on, by a pull consumer that assigns the queues itself. */
    private void pull(Line command, Driver.Answer answer) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.get("group"));
        consumer.setNamesrvAddr(command.get("namesrv"));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("pull" + System.nanoTime());
        consumer.setAutoCommit(false);
        // Its groups have committed nothing, so this is the beginning; a seek would race the pulls that assign() began,
        // and the client may then go on behind what it dropped.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        try {
            consumer.assign(consumer.fetchMessageQueues(command.get("topic")));
            long deadline = System.nanoTime() + command.number("withinMs") * 1_000_000L;
            // A message sent twice counts once.
            Set<String> ids = new HashSet<>();
            while (ids.size() < command.number("count") && System.nanoTime() < deadline) {
                for (MessageExt message : consumer.poll(200)) {
                    answer.add(row(answer.row(), message));
                    ids.add(message.getMsgId());
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    /** A topic from its beginning to its end, by pulls that each bring their filter along. */
    private void select(Line command, Driver.Answer answer) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.get("group"));
        consumer.setNamesrvAddr(command.get("namesrv"));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("select" + System.nanoTime());
        consumer.start();
        try {
            // The client asks the broker's version before it filters, and knows it by a heartbeat's answer.
            MQClientInstance instance =
                consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
            instance.updateTopicRouteInfoFromNameServer(command.get("topic"));
            instance.sendHeartbeatToAllBrokerWithLock();
            MessageSelector wanted = MessageSelector.bySql(command.get("sql"));
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(command.get("topic"))) {
                PullResult result;
                long offset = 0;
                do {
                    result = consumer.pull(queue, wanted, offset, 32);
                    offset = result.getNextBeginOffset();
                    for (MessageExt message : result.getPullStatus() == PullStatus.FOUND
                            ? result.getMsgFoundList() : Collections.<MessageExt>emptyList()) {
                        answer.add(row(answer.row(), message));
                    }
                } while (offset < result.getMaxOffset());
            }
        } finally {
            consumer.shutdown();
        }
    }
}
