// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// node is everything around an executor: API server, runtime, pods.
type node struct {
	mu sync.Mutex
	// lines are calls and results in their order.
	lines []string
	// answers by "evict NAME", "delete NAME", "stop NAME"; nil is success.
	answers map[string]error
	// slow calls last so long.
	slow map[string]time.Duration
	pods []string
	// alive is whether processes of a pod (by UID) are left; of who is not in it the cgroup is not known.
	alive map[string]bool
	// used is the memory of pods by UID, and of the node by "".
	used  map[string]unit.Bytes
	start time.Time
	// away is how long the machine was suspended.
	away time.Duration
	// end ends the executor's context.
	end context.CancelFunc
}

func (n *node) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

// take returns what happened since the last time.
func (n *node) take() string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	out := strings.Join(n.lines, "\n")
	n.lines = nil
	return out
}

func (n *node) call(ctx context.Context, what, name, uid string, grace time.Duration) error {
	n.note("%s %s %s %s", what, name, uid, grace)
	n.mu.Lock()
	err, wait := n.answers[what+" "+name], n.slow[what+" "+name]
	n.mu.Unlock()
	select {
	case <-time.After(wait):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *node) Evict(ctx context.Context, _, name, uid string, grace time.Duration) error {
	return n.call(ctx, "evict", name, uid, grace)
}

func (n *node) DeletePod(ctx context.Context, _, name, uid string, grace time.Duration) error {
	return n.call(ctx, "delete", name, uid, grace)
}

func (n *node) Record(ctx context.Context, instance string, e kube.Event) error {
	return n.call(ctx, "event "+instance+" "+e.Reason, e.Regarding.Name, e.Regarding.UID, 0)
}

// hands are the node's: each pod has one container, called like it.
func (n *node) hands() *Hands {
	return &Hands{
		Bodies: func(uid string) []Body {
			n.mu.Lock()
			defer n.mu.Unlock()
			b := Body{Containers: []string{strings.TrimSuffix(uid, "-uid")}}
			if _, known := n.alive[uid]; known {
				b.Cgroup = uid
			}
			return []Body{b}
		},
		Kill: func(ctx context.Context, name string, grace time.Duration) error {
			return n.call(ctx, "stop", name, name+"-uid", grace)
		},
		Populated: func(cgroup string) (bool, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.alive[cgroup], nil
		},
	}
}

func (n *node) set(edit func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	edit()
}

func (n *node) measure(uid string) (u Usage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if used, ok := n.used[uid]; ok {
		u.Memory = unit.Got(used)
	}
	if used, ok := n.used[""]; ok {
		u.NodeMemory = unit.Got(used)
	}
	return u
}

func (n *node) clock() unit.Micros {
	n.mu.Lock()
	defer n.mu.Unlock()
	return micros(time.Since(n.start)+n.away) + unit.Second
}

// Write takes a line of the log.
func (n *node) Write(line []byte) (int, error) {
	n.note("log %s", strings.TrimSpace(string(line)))
	return len(line), nil
}

// logger has no times.
func (n *node) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// snapshot is made by a real keeper, of pods given as "name" and what else their JSON says.
func (n *node) snapshot(t *testing.T) func() *pods.Snapshot {
	t.Helper()
	keeper := pods.New(pods.Options{Follow: func(ctx context.Context, sink *pods.APISink) error {
		for {
			n.mu.Lock()
			list := n.pods
			n.mu.Unlock()
			sink.Begin()
			for _, p := range list {
				sink.Object([]byte(p))
			}
			sink.End()
			sink.State(nil)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
	}, Interval: time.Second, Grace: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return keeper.Snapshot
}

// pod is one that runs, with more of its metadata.
func pod(name, metadata string) string {
	return fmt.Sprintf(`{"metadata":{"uid":"%s-uid","namespace":"batch","name":%q%s},"spec":{"terminationGracePeriodSeconds":20},
		"status":{"phase":"Running","qosClass":"BestEffort"}}`, name, name, metadata)
}

func (n *node) put(list ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = list
}

// with runs an executor in a bubble of simulated time.
func with(t *testing.T, edit func(n *node, o *Options), test func(n *node, x *Executor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{answers: map[string]error{}, slow: map[string]time.Duration{}, alive: map[string]bool{}, used: map[string]unit.Bytes{}, start: time.Now()}
		n.put(pod("a", ""), pod("b", ""), pod("c", ""))
		o := Options{API: n, Hands: n.hands(), Stops: StopDanger, Measure: n.measure, Clock: n.clock, Node: "node-001", Log: n.logger(), OnResult: func(r Result) {
			line := r.Outcome.String() + " " + r.Name
			if r.Err != nil {
				line += ": " + strings.ReplaceAll(r.Err.Error(), "\n", "; ")
			}
			if r.Pause > 0 && r.Outcome != Refused {
				line += ", pause " + r.Pause.String()
			}
			if r.Release != nil && r.Release.Before.Memory.OK {
				line += ": " + r.Release.Text(&r.Eviction)
			}
			n.note("= %s", line)
		}}
		if edit != nil {
			edit(n, &o)
		}
		o.Pods = n.snapshot(t) // reads n from here on
		x, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		n.end = cancel
		done := make(chan error)
		go func() { done <- x.Run(ctx) }()
		pass(time.Second)
		test(n, x)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// submit is a step that has chosen these, and still needs all that it has chosen.
func submit(x *Executor, evictions ...evict.Eviction) { x.Follow(step(evict.Needed, evictions...)) }

// step is what a step says of the feature of calm and danger, with the victims that it has chosen.
func step(rest evict.Rest, victims ...evict.Eviction) *evict.Output {
	d := evict.Decision{Rest: rest}
	if rest == evict.Needed {
		d.Memory.Left = 1 << 40
	}
	return &evict.Output{Evictions: victims, Decisions: []evict.Decision{d}}
}

// follow passes time with a step each second that says the same.
func follow(x *Executor, d time.Duration, rest evict.Rest) {
	for range d / time.Second {
		x.Follow(step(rest))
		pass(time.Second)
	}
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
