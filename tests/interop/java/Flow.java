import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Produces and consumes at once, as RocketMQ's own benchmark does: 64 threads that send synchronously, a push consumer,
 * one client instance each. Sends leave by the clock, and the time of a message runs from the moment at which its send was
 * due until its listener is called. A line on stdin is {@code RATE WARM_UP_SECONDS SECONDS}; the answer is the number of
 * messages that were due in those seconds, how many of them came, and p50, p99 and the longest time in milliseconds.
 */
public final class Flow {
    private static final int THREADS = 64;
    private static final int BODY_BYTES = 128;
    private static final long PATIENCE_SECONDS = 20;

    private final String topic;
    private final DefaultMQProducer producer = new DefaultMQProducer("flow");
    private final AtomicInteger errors = new AtomicInteger();
    private volatile Turn turn;

    private Flow(String namesrv, String topic) throws Exception {
        this.topic = topic;
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.start();
        producer.send(message(0, 0));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("flow");
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setPollNameServerInterval(1_000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (delivered, context) -> {
            long now = System.nanoTime();
            Turn current = turn;
            for (MessageExt one : delivered) {
                if (current != null) {
                    current.received(ByteBuffer.wrap(one.getBody()), now);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        try {
            Flow flow = new Flow(args[0], args[1]);
            out.println("ready");
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String text = in.readLine(); text != null; text = in.readLine()) {
                String[] words = text.split(" ");
                out.println(flow.run(Double.parseDouble(words[0]), Double.parseDouble(words[1]), Double.parseDouble(words[2])));
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    private Turn run(double rate, double warmUpSeconds, double seconds) throws InterruptedException {
        int unmeasured = (int) (rate * warmUpSeconds);
        Turn current = new Turn(System.nanoTime(), unmeasured, (int) (rate * seconds));
        turn = current;
        double gapNanos = 1e9 / rate;
        Thread[] threads = new Thread[THREADS];
        for (int first = 0; first < THREADS; first++) {
            int offset = first;
            threads[first] = new Thread(() -> {
                for (int number = offset; number < current.total(); number += THREADS) {
                    send(current, number, (long) (number * gapNanos));
                }
            });
            threads[first].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        current.over.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
        turn = null;
        return current;
    }

    private void send(Turn current, int number, long dueNanos) {
        long wait = current.began + dueNanos - System.nanoTime();
        while (wait > 0) {
            LockSupport.parkNanos(wait);
            wait = current.began + dueNanos - System.nanoTime();
        }
        try {
            producer.send(message(current.began + dueNanos, number + 1));
        } catch (Exception error) {
            if (errors.getAndIncrement() == 0) {
                error.printStackTrace();
            }
        }
    }

    private Message message(long dueNanos, int number) {
        return new Message(topic, ByteBuffer.allocate(BODY_BYTES).putLong(dueNanos).putInt(number).array());
    }

    /** What one line asked for. */
    private static final class Turn {
        private final long began;
        private final int unmeasured;
        private final int[] micros;
        private final AtomicInteger received = new AtomicInteger();
        private final CountDownLatch over;

        Turn(long began, int unmeasured, int measured) {
            this.began = began;
            this.unmeasured = unmeasured;
            this.micros = new int[measured];
            Arrays.fill(micros, -1);
            this.over = new CountDownLatch(measured);
        }

        int total() {
            return unmeasured + micros.length;
        }

        void received(ByteBuffer body, long now) {
            long due = body.getLong();
            int number = body.getInt() - 1 - unmeasured;
            if (due >= began && number >= 0 && number < micros.length && micros[number] < 0) {
                micros[number] = (int) ((now - due) / 1_000);
                received.incrementAndGet();
                over.countDown();
            }
        }

        @Override
        public String toString() {
            int[] came = Arrays.stream(micros).filter(one -> one >= 0).sorted().toArray();
            if (came.length == 0) {
                return micros.length + " 0 0 0 0";
            }
            return micros.length + " " + came.length + " " + came[came.length / 2] / 1e3 + " "
                + came[(int) (came.length * 0.99)] / 1e3 + " " + came[came.length - 1] / 1e3;
        }
    }
}
