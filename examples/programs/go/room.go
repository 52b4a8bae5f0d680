// Follows a room of examples/chat and speaks in it, with github.com/centrifugal/centrifuge-go.
//
//	go run . lobby Ada                          # all that is kept, then what is new; each line you type is said
//	go run . -position position.json lobby Ada  # goes on where it was when it ended
//
// Whatever becomes of network, broker and program: each message is printed once, or its loss is told.
package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

const (
	// Ids of messages that are remembered, so that one that was sent twice is printed once.
	remembered = 10_000
	// Until a message is sent again that was not confirmed.
	again = 500 * time.Millisecond
	// How long a confirmation may take.
	confirmed = 5 * time.Second
)

type message struct {
	ID     string `json:"id,omitempty"`
	Person string `json:"person,omitempty"`
	Name   string `json:"name"`
	Text   string `json:"text"`
	At     int64  `json:"at"`
}

type position struct {
	Offset uint64 `json:"offset"`
	Epoch  string `json:"epoch"`
}

type room struct {
	name, file   string
	client       *centrifuge.Client
	subscription *centrifuge.Subscription
	hasBegun     bool
	epoch        string
	seen         map[string]bool
	order        []string
}

func tell(format string, words ...any) { fmt.Fprintf(os.Stderr, format+"\n", words...) }

func fail(err error) {
	if err != nil {
		tell("%v", err)
		os.Exit(1)
	}
}

func open(client *centrifuge.Client, name, file string) *room {
	r := &room{name: name, file: file, client: client, seen: map[string]bool{}}
	subscription, err := client.NewSubscription("chat:"+name, centrifuge.SubscriptionConfig{
		Recoverable: true, Positioned: true, GetState: r.whereToBegin,
	})
	fail(err)
	r.subscription = subscription
	subscription.OnSubscribed(func(e centrifuge.SubscribedEvent) {
		r.epoch = e.StreamPosition.Epoch
		tell("live")
	})
	subscription.OnSubscribing(func(e centrifuge.SubscribingEvent) { tell("away: %s", e.Reason) })
	subscription.OnUnsubscribed(func(e centrifuge.UnsubscribedEvent) {
		fail(fmt.Errorf("the broker ends it: %s", e.Reason))
	})
	subscription.OnPublication(r.heard)
	fail(subscription.Subscribe())
	return r
}

// whereToBegin is what the SDK asks at the beginning, and again if the broker cannot go on there without a gap.
func (r *room) whereToBegin(centrifuge.SubscriptionGetStateEvent) (centrifuge.StreamPosition, error) {
	if !r.hasBegun {
		r.hasBegun = true
		var begin position
		content, err := os.ReadFile(r.file)
		if err == nil {
			err = json.Unmarshal(content, &begin)
		} else if r.file == "" || errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return centrifuge.StreamPosition(begin), err
	}
	tell("gap: messages of %s are missing; going on with the oldest that is kept", r.name)
	kept, err := r.client.History(context.Background(), "chat:"+r.name, centrifuge.WithHistoryLimit(1))
	if err != nil {
		return centrifuge.StreamPosition{}, err
	}
	begin := centrifuge.StreamPosition{Offset: kept.Offset, Epoch: kept.Epoch}
	if len(kept.Publications) > 0 {
		begin.Offset = kept.Publications[0].Offset - 1
	}
	return begin, nil
}

func (r *room) heard(e centrifuge.PublicationEvent) {
	var m message
	if json.Unmarshal(e.Data, &m) == nil && m.Text != "" && r.isNew(m) {
		fmt.Printf("%s: %s\n", cmp.Or(m.Name, "somebody"), m.Text)
	}
	if r.file == "" {
		return
	}
	content, err := json.Marshal(position{e.Offset, r.epoch})
	fail(err)
	fail(os.WriteFile(r.file+".new", content, 0o600))
	fail(os.Rename(r.file+".new", r.file))
}

func (r *room) isNew(m message) bool {
	if m.ID == "" {
		return true
	}
	key := m.Person + " " + m.ID
	if r.seen[key] {
		return false
	}
	r.seen[key] = true
	r.order = append(r.order, key)
	if len(r.order) > remembered {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
	return true
}

// say sends a message until it is confirmed, always with the same id.
func (r *room) say(m message) {
	content, err := json.Marshal(m)
	fail(err)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), confirmed)
		_, err := r.subscription.Publish(ctx, content)
		cancel()
		if err == nil {
			return
		}
		var refusal *centrifuge.Error
		if errors.As(err, &refusal) && !refusal.Temporary {
			tell("not sent: %s", refusal.Message)
			return
		}
		time.Sleep(again)
	}
}

func main() {
	broker := flag.String("broker", "ws://127.0.0.1:4437/connection/websocket", "where live connections begin")
	file := flag.String("position", "", "the file that remembers where it was")
	flag.Parse()
	if flag.NArg() != 2 {
		fail(errors.New("usage: room [-broker URL] [-position FILE] ROOM NAME"))
	}
	client := centrifuge.NewJsonClient(*broker, centrifuge.Config{MaxReconnectDelay: 2 * time.Second})
	r := open(client, flag.Arg(0), *file)
	fail(client.Connect())

	person := rand.Text()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if text := strings.TrimSpace(lines.Text()); text != "" {
			r.say(message{rand.Text(), person, flag.Arg(1), text, time.Now().UnixMilli()})
		}
	}
	select {}
}
