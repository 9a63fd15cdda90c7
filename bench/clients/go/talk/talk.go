// Package talk is what all clients in Go have in common: a command with its words comes as arguments, answers are lines
// of JSON. A member of a group and a writer live on, and are asked by lines on standard input, until that ends.
package talk

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Within is how long a call may take.
const Within = 30 * time.Second

// ErrLacks says that this client has no such thing.
var ErrLacks = errors.New("this client has no such thing")

// Part is a partition of a topic.
type Part = [2]any

// Client is one make: docstrings of bench/clients/trying.py say what each is for.
type Client interface {
	Look() ([]string, int, error)
	Produce(topic, acks string, idempotent bool, values []string) error
	Read(topic string, seconds float64, wanted []string) ([]string, error)
	Transact(topic, group string, place int64, commit bool, values []string) error
	Place(group, topic string) (int64, error)
	Member(group, way, instance string, topics []string) (Member, error)
	Writer(topic, transactional string) (Writer, error)
	Describe() (string, int, error)
	Create(topic string) error
	Ends(topics []string) (map[string]int64, error)
	Groups() ([]string, error)
	// Refusal tells an error that somebody answered from one of the client's own.
	Refusal(err error) bool
}

// Member is a consumer in a group.
type Member interface {
	Poll(wait time.Duration) ([]string, error)
	Parts() []Part
	Commit() error
	Close()
}

// Writer returns once all values are acknowledged, or their transaction is committed.
type Writer interface {
	Write(values []string) error
	Close()
}

// Run answers the one command that the process was started with.
func Run(client func(bootstrap string) Client) {
	command, made, words := os.Args[1], client(os.Args[2]), os.Args[3:]
	switch command {
	case "member":
		member, err := made.Member(words[0], words[1], words[2], words[3:])
		answer(made, nil, err)
		if err == nil {
			defer member.Close()
			each(func(asked []string) { answerMember(made, member, asked) })
		}
	case "writer":
		writer, err := made.Writer(words[0], words[1])
		answer(made, nil, err)
		if err == nil {
			defer writer.Close()
			each(func(values []string) { answer(made, nil, writer.Write(values)) })
		}
	default:
		found, err := once(made, command, words)
		answer(made, found, err)
	}
}

func once(client Client, command string, words []string) (any, error) {
	switch command {
	case "look":
		topics, brokers, err := client.Look()
		return []any{topics, brokers}, err
	case "produce":
		return nil, client.Produce(words[0], words[1], words[2] == "true", words[3:])
	case "read":
		seconds, _ := strconv.ParseFloat(words[1], 64)
		return client.Read(words[0], seconds, words[2:])
	case "transact":
		place, _ := strconv.ParseInt(words[2], 10, 64)
		return nil, client.Transact(words[0], words[1], place, words[3] == "true", words[4:])
	case "place":
		return client.Place(words[0], words[1])
	case "describe":
		id, brokers, err := client.Describe()
		return []any{id, brokers}, err
	case "create":
		return nil, client.Create(words[0])
	case "ends":
		return client.Ends(words)
	case "groups":
		return client.Groups()
	}
	return nil, fmt.Errorf("there is no command %s", command)
}

func answerMember(client Client, member Member, asked []string) {
	if asked[0] == "commit" {
		answer(client, nil, member.Commit())
		return
	}
	wait, _ := strconv.Atoi(asked[1])
	values, err := member.Poll(time.Duration(wait) * time.Millisecond)
	answer(client, []any{append([]string{}, values...), append([]Part{}, member.Parts()...)}, err)
}

func each(do func([]string)) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		do(strings.Fields(lines.Text()))
	}
}

func answer(client Client, found any, err error) {
	said := map[string]any{"found": found}
	switch {
	case errors.Is(err, ErrLacks):
		said = map[string]any{"lacks": err.Error()}
	case err != nil && client.Refusal(err):
		said = map[string]any{"refused": err.Error()}
	case err != nil:
		said = map[string]any{"wrong": err.Error()}
	}
	line, _ := json.Marshal(said)
	fmt.Println(string(line))
}

// Gathered is what came out of a channel of values while it was waited for.
func Gathered(values <-chan func() string, wait time.Duration) []string {
	found, over := []string{}, time.After(wait)
	for {
		select {
		case take := <-values:
			found = append(found, take())
		case <-over:
			return found
		}
	}
}

// Until reads until all that are wanted were there or the time is over.
func Until(seconds float64, wanted []string, poll func(time.Duration) ([]string, error)) ([]string, error) {
	left, found := map[string]bool{}, []string{}
	for _, value := range wanted {
		left[value] = true
	}
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for len(left) > 0 && time.Now().Before(until) {
		values, err := poll(time.Second / 4)
		if err != nil {
			return nil, err
		}
		for _, value := range values {
			delete(left, value)
		}
		found = append(found, values...)
	}
	return found, nil
}

// Held are the partitions that a member has.
type Held struct {
	lock  sync.Mutex
	parts map[Part]bool
}

// Set says whether it has the partition from now on.
func (h *Held) Set(topic string, part int32, has bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.parts == nil {
		h.parts = map[Part]bool{}
	}
	if has {
		h.parts[Part{topic, part}] = true
	} else {
		delete(h.parts, Part{topic, part})
	}
}

// Parts lists them.
func (h *Held) Parts() []Part {
	h.lock.Lock()
	defer h.lock.Unlock()
	found := []Part{}
	for part := range h.parts {
		found = append(found, part)
	}
	return found
}
