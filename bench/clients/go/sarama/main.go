// sarama drives the client of that name.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"twinshore/clients/talk"
)

type client struct{ bootstrap []string }

func main() { talk.Run(func(bootstrap string) talk.Client { return client{[]string{bootstrap}} }) }

func settings() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	return made
}

func (c client) Refusal(err error) bool {
	var told sarama.KError
	return errors.As(err, &told)
}

func (c client) with(do func(sarama.Client) error) error {
	made, err := sarama.NewClient(c.bootstrap, settings())
	if err != nil {
		return err
	}
	defer made.Close()
	return do(made)
}

func (c client) administer(do func(sarama.ClusterAdmin) error) error {
	made, err := sarama.NewClusterAdmin(c.bootstrap, settings())
	if err != nil {
		return err
	}
	defer made.Close()
	return do(made)
}

func (c client) Look() (topics []string, brokers int, err error) {
	err = c.with(func(made sarama.Client) error {
		topics, err = made.Topics()
		brokers = len(made.Brokers())
		return err
	})
	return topics, brokers, err
}

func (c client) Describe() (id string, brokers int, err error) {
	err = c.with(func(made sarama.Client) error {
		broker, err := made.Controller()
		if err != nil {
			return err
		}
		told, err := broker.GetMetadata(sarama.NewMetadataRequest(sarama.V2_1_0_0, nil))
		if err != nil {
			return err
		}
		if told.ClusterID != nil {
			id = *told.ClusterID
		}
		brokers = len(told.Brokers)
		return nil
	})
	return id, brokers, err
}

func (c client) Create(topic string) error {
	return c.administer(func(made sarama.ClusterAdmin) error {
		return made.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	})
}

func (c client) Ends(topics []string) (map[string]int64, error) {
	found := map[string]int64{}
	err := c.with(func(made sarama.Client) error {
		for _, topic := range topics {
			for part := range int32(2) {
				end, err := made.GetOffset(topic, part, sarama.OffsetNewest)
				if err != nil {
					return err
				}
				found[topic] += end
			}
		}
		return nil
	})
	return found, err
}

func (c client) Groups() (names []string, err error) {
	err = c.administer(func(made sarama.ClusterAdmin) error {
		told, err := made.ListConsumerGroups()
		for name := range told {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

func (c client) Place(group, topic string) (place int64, err error) {
	err = c.administer(func(made sarama.ClusterAdmin) error {
		told, err := made.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
		if err == nil {
			place = told.GetBlock(topic, 0).Offset
		}
		return err
	})
	return place, err
}

func messages(topic string, values []string) []*sarama.ProducerMessage {
	made := make([]*sarama.ProducerMessage, len(values))
	for i, value := range values {
		made[i] = &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(value), Value: sarama.StringEncoder(value),
		}
	}
	return made
}

func (c client) producer(idempotent bool, transactional string, acks sarama.RequiredAcks) (sarama.SyncProducer, error) {
	asked := settings()
	asked.Producer.RequiredAcks = acks
	if idempotent {
		asked.Producer.Idempotent, asked.Net.MaxOpenRequests = true, 1
		asked.Producer.Transaction.ID = transactional
	}
	return sarama.NewSyncProducer(c.bootstrap, asked)
}

func (c client) Produce(topic, acks string, idempotent bool, values []string) error {
	known := map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
	producer, err := c.producer(idempotent, "", known[acks])
	if err != nil {
		return err
	}
	defer producer.Close()
	return send(producer, topic, values)
}

// send returns what became of the first record that was not acknowledged.
func send(producer sarama.SyncProducer, topic string, values []string) error {
	err := producer.SendMessages(messages(topic, values))
	var several sarama.ProducerErrors
	if errors.As(err, &several) && len(several) > 0 {
		return several[0].Err
	}
	return err
}

func (c client) Read(topic string, seconds float64, wanted []string) ([]string, error) {
	consumer, err := sarama.NewConsumer(c.bootstrap, settings())
	if err != nil {
		return nil, err
	}
	values := make(chan func() string)
	for part := range int32(2) {
		from, err := consumer.ConsumePartition(topic, part, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		go func() {
			for one := range from.Messages() {
				values <- func() string { return string(one.Value) }
			}
		}()
	}
	return talk.Until(seconds, wanted, func(wait time.Duration) ([]string, error) {
		return talk.Gathered(values, wait), nil
	})
}

func (c client) Transact(topic, group string, place int64, commit bool, values []string) error {
	producer, err := c.producer(true, group+"-writer", sarama.WaitForAll)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	err = send(producer, topic, values)
	if err == nil {
		places := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: place}}}
		err = producer.AddOffsetsToTxn(places, group)
	}
	if err != nil {
		return errors.Join(err, producer.AbortTxn())
	}
	if commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

type member struct {
	talk.Held
	group  sarama.ConsumerGroup
	values chan func() string
	last   sarama.ConsumerGroupSession
	failed chan error
	end    context.CancelFunc
}

func (c client) Member(group, way, instance string, topics []string) (talk.Member, error) {
	asked := settings()
	asked.Consumer.Group.Session.Timeout = 10 * time.Second
	asked.Consumer.Group.Heartbeat.Interval = time.Second / 2
	asked.Consumer.Group.InstanceId = instance
	switch way {
	case "eager":
		asked.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRoundRobin()}
	case "cooperative":
		strategy := sarama.NewBalanceStrategyCooperativeSticky()
		asked.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	default:
		return nil, talk.ErrLacks
	}
	made, err := sarama.NewConsumerGroup(c.bootstrap, group, asked)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	one := &member{group: made, values: make(chan func() string), failed: make(chan error, 1), end: end}
	go func() {
		for ctx.Err() == nil {
			if err := made.Consume(ctx, topics, one); err != nil && ctx.Err() == nil {
				select {
				case one.failed <- err:
				default:
				}
				time.Sleep(time.Second / 2)
			}
		}
	}()
	return one, nil
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m.Set(claim.Topic(), claim.Partition(), true)
	defer m.Set(claim.Topic(), claim.Partition(), false)
	for {
		select {
		case one, more := <-claim.Messages():
			if !more {
				return nil
			}
			take := func() string {
				session.MarkMessage(one, "")
				m.last = session
				return string(one.Value)
			}
			select {
			case m.values <- take:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) Poll(wait time.Duration) ([]string, error) {
	values := talk.Gathered(m.values, wait)
	select {
	case err := <-m.failed:
		return values, err
	default:
		return values, nil
	}
}

func (m *member) Commit() error {
	if m.last != nil {
		m.last.Commit()
	}
	return nil
}

func (m *member) Close() {
	m.end()
	m.group.Close()
}

type writer struct {
	producer      sarama.SyncProducer
	topic         string
	transactional bool
}

func (c client) Writer(topic, transactional string) (talk.Writer, error) {
	producer, err := c.producer(true, transactional, sarama.WaitForAll)
	return writer{producer, topic, transactional != ""}, err
}

func (w writer) Write(values []string) error {
	if !w.transactional {
		return send(w.producer, w.topic, values)
	}
	if err := w.producer.BeginTxn(); err != nil {
		return err
	}
	err := send(w.producer, w.topic, values)
	for until := time.Now().Add(talk.Within); ; time.Sleep(time.Second / 4) {
		status := w.producer.TxnStatus()
		if status&sarama.ProducerTxnFlagFatalError != 0 || time.Now().After(until) {
			return errors.Join(errors.New("the producer cannot go on"), err)
		}
		if err != nil || status&sarama.ProducerTxnFlagAbortableError != 0 {
			if w.producer.AbortTxn() == nil {
				return errors.Join(errors.New("aborted"), err)
			}
		} else if told := w.producer.CommitTxn(); told == nil {
			return nil
		}
	}
}

func (w writer) Close() { w.producer.Close() }
