import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * The real client under load, for the benchmarks. A line on stdin is a case and its amount: {@code sync SECONDS},
 * {@code async SECONDS IN_FLIGHT} or {@code push MESSAGES GROUP}; the answer on stdout is the number of messages, the
 * seconds and the CPU seconds of this process. The end of stdin ends it.
 */
public final class Load {
    private static final int BODY_BYTES = 128;

    private final String namesrv;
    private final String topic;
    private final DefaultMQProducer producer = new DefaultMQProducer("load");

    private Load(String namesrv, String topic) throws Exception {
        this.namesrv = namesrv;
        this.topic = topic;
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.start();
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        Load load = new Load(args[0], args[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            for (String text = in.readLine(); text != null; text = in.readLine()) {
                out.println(load.run(text.split(" ")));
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    private Taken run(String[] words) throws Exception {
        switch (words[0]) {
            case "sync":
                return sync(Double.parseDouble(words[1]));
            case "async":
                return async(Double.parseDouble(words[1]), Integer.parseInt(words[2]));
            case "push":
                return push(Integer.parseInt(words[1]), words[2]);
            default:
                throw new IllegalArgumentException("no case " + words[0]);
        }
    }

    /** Each send waits for the one before it. */
    private Taken sync(double seconds) throws Exception {
        Taken taken = new Taken();
        taken.begin();
        while (taken.elapsedSeconds() < seconds) {
            producer.send(message());
            taken.messages++;
        }
        taken.end();
        return taken;
    }

    /** Sends with callbacks, so many under way at once. */
    private Taken async(double seconds, int inFlight) throws Exception {
        Semaphore free = new Semaphore(inFlight);
        AtomicLong failed = new AtomicLong();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
                failed.incrementAndGet();
                free.release();
            }
        };
        Taken taken = new Taken();
        taken.begin();
        while (taken.elapsedSeconds() < seconds) {
            free.acquire();
            producer.send(message(), callback);
            taken.messages++;
        }
        free.acquire(inFlight);
        taken.end();
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " sends failed");
        }
        return taken;
    }

    /** A listener that does nothing, one message a time; the clock runs from the first message to the last. */
    private Taken push(int messages, String group) throws Exception {
        Taken taken = new Taken();
        AtomicLong received = new AtomicLong();
        CountDownLatch over = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // Else the first pull may come as late as the second heartbeat, 30 s after the start.
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setPollNameServerInterval(1_000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (delivered, context) -> {
            long number = received.incrementAndGet();
            if (number == 1) {
                taken.begin();
            }
            if (number == messages) {
                taken.end();
                over.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        over.await();
        consumer.shutdown();
        taken.messages = messages;
        return taken;
    }

    private Message message() {
        return new Message(topic, new byte[BODY_BYTES]);
    }

    /** How many messages took how long. */
    private static final class Taken {
        private long messages;
        private volatile long nanos;
        private volatile long cpuNanos;

        void begin() {
            nanos = -System.nanoTime();
            cpuNanos = -cpu();
        }

        void end() {
            nanos += System.nanoTime();
            cpuNanos += cpu();
        }

        double elapsedSeconds() {
            return (nanos + System.nanoTime()) / 1e9;
        }

        private static long cpu() {
            return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
        }

        @Override
        public String toString() {
            return messages + " " + nanos / 1e9 + " " + cpuNanos / 1e9;
        }
    }
}
