// kafka-go drives segmentio's client of that name.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"twinshore/clients/talk"
)

type client struct {
	bootstrap string
	admin     *kafka.Client
}

func main() {
	talk.Run(func(bootstrap string) talk.Client {
		return client{bootstrap, &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: talk.Within}}
	})
}

func (c client) Refusal(err error) bool {
	var told kafka.Error
	var several kafka.WriteErrors
	if errors.As(err, &several) {
		for _, one := range several {
			if one != nil {
				return c.Refusal(one)
			}
		}
	}
	return errors.As(err, &told)
}

func (c client) Look() ([]string, int, error) {
	told, err := c.admin.Metadata(context.Background(), &kafka.MetadataRequest{})
	if err != nil {
		return nil, 0, err
	}
	names := []string{}
	for _, topic := range told.Topics {
		names = append(names, topic.Name)
	}
	return names, len(told.Brokers), nil
}

func (c client) Describe() (string, int, error) {
	told, err := c.admin.Metadata(context.Background(), &kafka.MetadataRequest{})
	if err != nil {
		return "", 0, err
	}
	return told.ClusterID, len(told.Brokers), nil
}

func (c client) Create(topic string) error {
	asked := kafka.TopicConfig{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}
	told, err := c.admin.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{asked}})
	if err != nil {
		return err
	}
	return told.Errors[topic]
}

func (c client) Ends(topics []string) (map[string]int64, error) {
	asked := map[string][]kafka.OffsetRequest{}
	for _, topic := range topics {
		asked[topic] = []kafka.OffsetRequest{kafka.LastOffsetOf(0), kafka.LastOffsetOf(1)}
	}
	told, err := c.admin.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{Topics: asked})
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	for topic, parts := range told.Topics {
		for _, part := range parts {
			found[topic] += part.LastOffset
			err = errors.Join(err, part.Error)
		}
	}
	return found, err
}

func (c client) Groups() ([]string, error) {
	told, err := c.admin.ListGroups(context.Background(), &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, group := range told.Groups {
		names = append(names, group.GroupID)
	}
	return names, told.Error
}

func (c client) Place(string, string) (int64, error) { return 0, talk.ErrLacks }

func (c client) Transact(string, string, int64, bool, []string) error { return talk.ErrLacks }

func (c client) writer(topic string, acks kafka.RequiredAcks) *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(c.bootstrap), Topic: topic, RequiredAcks: acks, Balancer: &kafka.Hash{},
		BatchTimeout: 5 * time.Millisecond,
	}
}

func write(writer *kafka.Writer, values []string) error {
	made := make([]kafka.Message, len(values))
	for i, value := range values {
		made[i] = kafka.Message{Key: []byte(value), Value: []byte(value)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), talk.Within)
	defer cancel()
	return writer.WriteMessages(ctx, made...)
}

func (c client) Produce(topic, acks string, idempotent bool, values []string) error {
	if idempotent {
		return talk.ErrLacks
	}
	known := map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}
	writer := c.writer(topic, known[acks])
	defer writer.Close()
	return write(writer, values)
}

func (c client) reader(topic string, part int, place int64) (*kafka.Reader, error) {
	made := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.bootstrap}, Topic: topic, Partition: part, IsolationLevel: kafka.ReadCommitted,
		MaxWait: time.Second / 2,
	})
	return made, made.SetOffset(place)
}

func (c client) Read(topic string, seconds float64, wanted []string) ([]string, error) {
	values := make(chan func() string)
	for part := range 2 {
		reader, err := c.reader(topic, part, kafka.FirstOffset)
		if err != nil {
			return nil, err
		}
		go func() {
			for {
				one, err := reader.ReadMessage(context.Background())
				if err != nil {
					return
				}
				values <- func() string { return string(one.Value) }
			}
		}()
	}
	return talk.Until(seconds, wanted, func(wait time.Duration) ([]string, error) {
		return talk.Gathered(values, wait), nil
	})
}

type member struct {
	talk.Held
	client client
	group  *kafka.ConsumerGroup
	values chan func() string
	failed chan error
	places map[string]map[int]int64
	last   *kafka.Generation
}

func (c client) Member(group, way, instance string, topics []string) (talk.Member, error) {
	if way != "eager" || instance != "" {
		return nil, talk.ErrLacks
	}
	made, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: []string{c.bootstrap}, Topics: topics, StartOffset: kafka.FirstOffset,
		GroupBalancers:    []kafka.GroupBalancer{kafka.RoundRobinGroupBalancer{}},
		HeartbeatInterval: time.Second / 2, SessionTimeout: 10 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	one := &member{client: c, group: made, values: make(chan func() string), failed: make(chan error, 1)}
	go one.run()
	return one, nil
}

// run goes from one generation of the group to the next.
func (m *member) run() {
	for {
		generation, err := m.group.Next(context.Background())
		if errors.Is(err, kafka.ErrGroupClosed) {
			return
		}
		if err != nil { // it joins again, as a Reader does
			continue
		}
		for topic, parts := range generation.Assignments {
			for _, part := range parts {
				generation.Start(func(ctx context.Context) { m.consume(ctx, generation, topic, part) })
			}
		}
	}
}

func (m *member) tell(err error) {
	select {
	case m.failed <- err:
	default:
	}
}

func (m *member) consume(ctx context.Context, generation *kafka.Generation, topic string, part kafka.PartitionAssignment) {
	m.Set(topic, int32(part.ID), true)
	defer m.Set(topic, int32(part.ID), false)
	reader, err := m.client.reader(topic, part.ID, part.Offset)
	if err != nil {
		m.tell(err)
		return
	}
	defer reader.Close()
	for {
		one, err := reader.ReadMessage(ctx)
		if errors.Is(err, kafka.ErrGenerationEnded) {
			return
		}
		if err != nil {
			m.tell(err)
			return
		}
		take := func() string {
			if m.last != generation {
				m.last, m.places = generation, map[string]map[int]int64{}
			}
			if m.places[topic] == nil {
				m.places[topic] = map[int]int64{}
			}
			m.places[topic][part.ID] = one.Offset + 1
			return string(one.Value)
		}
		select {
		case m.values <- take:
		case <-ctx.Done():
			return
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
	if m.last == nil {
		return nil
	}
	return m.last.CommitOffsets(m.places)
}

func (m *member) Close() { m.group.Close() }

type writer struct{ *kafka.Writer }

func (w writer) Write(values []string) error { return write(w.Writer, values) }

func (w writer) Close() { w.Writer.Close() }

func (c client) Writer(topic, transactional string) (talk.Writer, error) {
	if transactional != "" {
		return nil, talk.ErrLacks
	}
	return writer{c.writer(topic, kafka.RequireAll)}, nil
}
