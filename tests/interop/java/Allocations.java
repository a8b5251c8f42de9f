import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** The verb that asks the client's allocation strategies. A room is what stands before the first dash. */
final class Allocations {
    void register(Map<String, Driver.Verb> verbs) {
        verbs.put("allocate", this::allocate);
    }

    private void allocate(Line command, Driver.Answer answer) {
        List<MessageQueue> queues = queues(command.get("queues"));
        List<String> members = Arrays.asList(command.get("members").split(" "));
        AllocateMessageQueueStrategy strategy = strategy(command);
        for (String member : members) {
            StringBuilder share = new StringBuilder();
            for (MessageQueue queue : strategy.allocate("g", member, queues, members)) {
                share.append(queue.getTopic()).append('/').append(queue.getBrokerName()).append('/')
                    .append(queue.getQueueId()).append(' ');
            }
            answer.add(answer.row().with("share", share.toString().trim()));
        }
    }

    private static List<MessageQueue> queues(String texts) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String text : texts.split(" ")) {
            String[] parts = text.split("/");
            queues.add(new MessageQueue(parts[0], parts[1], Integer.parseInt(parts[2])));
        }
        return queues;
    }

    /** What a command names: the average without a name, with CONFIG the queues that it gives. */
    static AllocateMessageQueueStrategy strategy(Line command) {
        if (command.get("strategy", "AVG").equals("CONFIG")) {
            AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
            byConfig.setMessageQueueList(queues(command.get("queues")));
            return byConfig;
        }
        return strategy(command.get("strategy", "AVG"), command.get("rooms", ""));
    }

    private static AllocateMessageQueueStrategy strategy(String name, String rooms) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(Arrays.asList(rooms.split(" "))));
                return byRoom;
            default:
                return new AllocateMachineRoomNearby(strategy(name.substring("NEARBY-".length()), rooms), new Rooms());
        }
    }

    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("-")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("-")[0];
        }
    }
}
