// What the official Go client does with a broker; conformance/README.md says the steps.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"sync"
	"time"

	streams "github.com/durable-streams/durable-streams/packages/client-go"
)

const (
	first, tailed, after = 20, 5, 10
	deadline             = 60 * time.Second
)

type message struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func messageOf(n int) message { return message{n, fmt.Sprintf("message %d ✓", n)} }

func chunkOf(n int) []byte {
	chunk := make([]byte, 1000+n)
	for index := range chunk {
		chunk[index] = byte(index*7 + n)
	}
	return chunk
}

func upTo[T any](count int, make func(int) T) []T {
	var all []T
	for n := range count {
		all = append(all, make(n))
	}
	return all
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go:", err)
		os.Exit(1)
	}
}

// headers has the key, if one is to be shown, and what is added to it.
func headers(more map[string]string) map[string]string {
	all := map[string]string{}
	if key := os.Getenv("CONFORMANCE_KEY"); key != "" {
		all["Authorization"] = "Bearer " + key
	}
	maps.Copy(all, more)
	return all
}

func step(name string) { fmt.Println("step", name) }

// follow reads a stream from its start. The client ends an iteration whose connection breaks, so it is
// begun again at the offset that it has reached, as a user of it would.
type follow struct {
	lock  sync.Mutex
	bytes []byte
	json  []message
}

func (f *follow) run(stream *streams.Stream, live streams.LiveMode, isJSON bool) {
	offset := streams.Offset("-1")
	withKey := streams.WithReadHeaders(headers(nil))
	for {
		it := stream.Read(context.Background(), streams.WithOffset(offset), streams.WithLive(live), withKey)
		for {
			chunk, err := it.Next()
			if err != nil {
				break
			}
			offset = chunk.NextOffset
			f.lock.Lock()
			if isJSON && len(chunk.Data) > 0 {
				var batch []message
				must(json.Unmarshal(chunk.Data, &batch))
				f.json = append(f.json, batch...)
			} else {
				f.bytes = append(f.bytes, chunk.Data...)
			}
			f.lock.Unlock()
		}
		it.Close()
		time.Sleep(50 * time.Millisecond)
	}
}

// has waits until what came is at least as long as it should be, and compares.
func has[T any](f *follow, what string, came func() []T, want []T) {
	until := time.Now().Add(deadline)
	for {
		f.lock.Lock()
		got := came()
		f.lock.Unlock()
		if len(got) >= len(want) {
			if !reflect.DeepEqual(got, want) {
				must(fmt.Errorf("%s: other than was appended: %d, not %d", what, len(got), len(want)))
			}
			return
		}
		if time.Now().After(until) {
			must(fmt.Errorf("%s: %d of %d have come", what, len(got), len(want)))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func main() {
	ctx := context.Background()
	base := fmt.Sprintf("%s/v1/stream/clients/go-%d", os.Args[1], os.Getpid())
	client := streams.NewClient()
	jsons, octets := client.Stream(base+"/json"), client.Stream(base+"/bytes")
	createWithKey, readWithKey := streams.WithCreateHeaders(headers(nil)), streams.WithReadHeaders(headers(nil))
	must(jsons.Create(ctx, streams.WithContentType("application/json"), createWithKey))
	must(octets.Create(ctx, streams.WithContentType("application/octet-stream"), createWithKey))
	step("create")

	sent := 0
	appendMore := func(count int, more map[string]string) {
		withHeaders := streams.WithAppendHeaders(headers(more))
		for n := sent; n < sent+count; n++ {
			_, err := jsons.AppendJSON(ctx, messageOf(n), withHeaders)
			must(err)
			_, err = octets.Append(ctx, chunkOf(n), withHeaders)
			must(err)
		}
		sent += count
	}
	appendMore(first, nil)
	step("append")

	var read []message
	for item, err := range streams.JSONItems[message](ctx, jsons, streams.WithOffset("-1"), readWithKey) {
		must(err)
		read = append(read, item)
	}
	if !reflect.DeepEqual(read, upTo(first, messageOf)) {
		must(errors.New("json: other than was appended"))
	}
	var whole []byte
	for chunk, err := range octets.Chunks(ctx, streams.WithOffset("-1"), readWithKey) {
		must(err)
		whole = append(whole, chunk.Data...)
	}
	if !bytes.Equal(whole, bytes.Join(upTo(first, chunkOf), nil)) {
		must(errors.New("bytes: other than was appended"))
	}
	step("read")

	var ofJSON, ofBytes follow
	go ofJSON.run(client.Stream(base+"/json"), streams.LiveModeSSE, true)
	go ofBytes.run(client.Stream(base+"/bytes"), streams.LiveModeLongPoll, false)
	hasAll := func() {
		has(&ofJSON, "json", func() []message { return ofJSON.json }, upTo(sent, messageOf))
		has(&ofBytes, "bytes", func() []byte { return ofBytes.bytes }, bytes.Join(upTo(sent, chunkOf), nil))
	}
	hasAll()
	appendMore(tailed, nil)
	hasAll()
	step("tail")

	fmt.Println("kill")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	appendMore(after, nil)
	hasAll()
	step("restart")

	// This client knows no close yet: its headers do it, with a last message.
	appendMore(1, map[string]string{"Stream-Closed": "true"})
	hasAll()
	if _, err := jsons.AppendJSON(ctx, messageOf(sent), streams.WithAppendHeaders(headers(nil))); !errors.Is(err, streams.ErrSeqConflict) {
		must(fmt.Errorf("an append to a closed stream: %v", err))
	}
	step("close")
}
