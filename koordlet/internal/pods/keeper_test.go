// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a kubelet that answers as it is told.
type script struct {
	mu    sync.Mutex
	pods  []*Pod
	err   error
	asked []time.Time
	// problems are those of every answer.
	problems []string
}

func (s *script) List(context.Context) ([]*Pod, []string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	return slices.Clone(s.pods), s.problems, s.err
}

func (s *script) Weakness() string { return "" }

func (s *script) say(err error, pods ...*Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.pods = err, pods
}

func (s *script) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// gaps are the times between two questions, of which there are as many less one.
func (s *script) gaps() (out []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(s.asked); i++ {
		out = append(out, s.asked[i].Sub(s.asked[i-1]))
	}
	return out
}

// server is an API server whose pods are followed.
type server struct {
	mu      sync.Mutex
	sink    *APISink
	running int
}

func (s *server) follow(ctx context.Context, sink *APISink) error {
	s.mu.Lock()
	s.sink = sink
	s.running++
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.sink = nil
	s.running--
	s.mu.Unlock()
	return nil
}

func (s *server) now() (*APISink, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sink, s.running
}

// list sends a complete list of pods named by their UIDs.
func (s *server) list(uids ...string) {
	sink, _ := s.now()
	sink.Begin()
	for _, uid := range uids {
		sink.Object(object(uid))
	}
	sink.End()
	sink.State(nil)
}

func object(uid string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q,"namespace":"n","name":%q},"status":{"phase":"Running","qosClass":"BestEffort"}}`, uid, uid)
}

func pod(uid string) *Pod {
	p, _, err := Decode(object(uid))
	if err != nil {
		return nil
	}
	return p
}

// keep runs a keeper in a bubble. until lets simulated time pass.
func keep(t *testing.T, o Options, test func(k *Keeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := New(o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		test(k)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// names are the pods of the snapshot.
func names(k *Keeper) string {
	var out []string
	for _, p := range k.Snapshot().Pods {
		out = append(out, p.UID)
	}
	return strings.Join(out, " ")
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestKeeperAsksTheKubelet(t *testing.T) {
	t.Parallel()
	kubelet := &script{}
	kubelet.say(nil, pod("b"), pod("a"))
	var seen []uint64
	o := Options{Kubelet: kubelet, OnChange: func(s *Snapshot) { seen = append(seen, s.Generation) }}
	keep(t, o, func(k *Keeper) {
		if got := names(k); got != "a b" {
			t.Errorf("pods %q", got)
		}
		first := k.Snapshot()
		a, _ := first.Pod("a")
		pass(time.Minute)
		if n := kubelet.times(); n < 6 || n > 8 {
			t.Errorf("asked %d times in a minute", n)
		}
		if k.Snapshot() != first {
			t.Error("a new snapshot though nothing changed")
		}
		kubelet.say(nil, pod("a"), pod("b"), pod("c"))
		k.Poke()
		synctest.Wait()
		pass(DefaultMinGap)
		if got := names(k); got != "a b c" {
			t.Errorf("pods %q after a poke", got)
		}
		if again, _ := k.Snapshot().Pod("a"); again != a {
			t.Error("a pod that did not change is another value")
		}
		asked := kubelet.times()
		pass(followUp)
		if kubelet.times() != asked+1 {
			t.Error("no second question after a poke")
		}
		if s := k.State(); s.Source != FromKubelet || !s.Current || s.Degraded() != "" {
			t.Errorf("state %+v", s)
		}
	})
	if !slices.Equal(seen, []uint64{1, 2}) {
		t.Errorf("generations %v", seen)
	}
}

// TestKeepersDoNotAskInStep: each pause is another one, up to a tenth shorter than the interval, so that nodes which start together do not go on
// together.
func TestKeepersDoNotAskInStep(t *testing.T) {
	t.Parallel()
	gaps := func() (out []time.Duration) {
		kubelet := &script{}
		kubelet.say(nil, pod("a"))
		keep(t, Options{Kubelet: kubelet}, func(*Keeper) {
			pass(10 * time.Minute)
			out = kubelet.gaps()
		})
		return out
	}
	one, other := gaps(), gaps()
	for _, node := range [][]time.Duration{one, other} {
		if len(node) < 59 || len(node) > 67 {
			t.Errorf("%d pauses in ten minutes", len(node))
		}
		short := 0
		for _, gap := range node {
			if gap < 9*time.Second || gap > 10*time.Second {
				t.Errorf("asked again after %s", gap)
			}
			if gap < 9500*time.Millisecond {
				short++
			}
		}
		// Half of them are: fewer than ten or more than fifty of 60 come by chance once in a million runs.
		if short < 10 || short > len(node)-10 {
			t.Errorf("%d of %d pauses are less than 9.5 s: %v", short, len(node), node)
		}
	}
	if slices.Equal(one, other) {
		t.Errorf("two nodes ask in step: %v", one)
	}
}

func TestKeeperPokesAreBounded(t *testing.T) {
	t.Parallel()
	kubelet := &script{}
	kubelet.say(nil, pod("a"))
	keep(t, Options{Kubelet: kubelet}, func(k *Keeper) {
		before := kubelet.times()
		for range 1000 {
			k.Poke()
			pass(time.Millisecond)
		}
		if n := kubelet.times() - before; n < 4 || n > 6 {
			t.Errorf("%d questions for a thousand pokes in a second", n)
		}
	})
}

// What is wrong with pods is told in the same order at each look, some of it, and how much there is beside that.
func TestKeeperTellsOfSomeProblems(t *testing.T) {
	t.Parallel()
	for want, problems := range map[string][]string{
		"":                             nil,
		"a: x":                         {"a: x"},
		"a: x; b: y; c: z":             {"c: z", "a: x", "b: y"},
		"a: x; b: y; c: z; and 2 more": {"e", "d", "c: z", "a: x", "b: y"},
	} {
		kubelet := &script{problems: problems}
		kubelet.say(nil, pod("a"))
		keep(t, Options{Kubelet: kubelet}, func(k *Keeper) {
			if got := k.State().Degraded(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestKeeperFallsBackToTheAPIServer(t *testing.T) {
	t.Parallel()
	kubelet, api := &script{}, &server{}
	kubelet.say(nil, pod("a"))
	keep(t, Options{Kubelet: kubelet, Follow: api.follow}, func(k *Keeper) {
		if _, n := api.now(); n != 0 {
			t.Error("follows the API server while the kubelet answers")
		}
		kubelet.say(errors.New("connection refused"))
		pass(DefaultInterval)
		if got, s := names(k), k.State(); got != "a" || s.Current || !strings.Contains(s.Degraded(), "connection refused") {
			t.Errorf("pods %q, %s", got, s.Degraded())
		}
		pass(DefaultPatience + 2*time.Second)
		if _, n := api.now(); n != 1 {
			t.Fatalf("%d followers", n)
		}
		api.list("a", "b")
		synctest.Wait()
		if got, s := names(k), k.State(); got != "a b" || s.Source != FromAPI || s.Degraded() != "pods from the API server: connection refused" {
			t.Errorf("pods %q, %s", got, s.Degraded())
		}
		sink, _ := api.now()
		sink.Delete(object("b"))
		synctest.Wait()
		sink.Object(object("c"))
		synctest.Wait()
		if got := names(k); got != "a b c" {
			t.Errorf("pods %q: b has not ended, it is kept for a while", got)
		}
		sink.State(errors.New("reset by peer"))
		synctest.Wait()
		if s := k.State(); s.Current || !strings.Contains(s.Degraded(), "connection refused; reset by peer") {
			t.Errorf("%s", s.Degraded())
		}
		kubelet.say(nil, pod("a"), pod("c"))
		pass(2 * time.Second)
		if s := k.State(); s.Source != FromKubelet || s.Degraded() != "" || s.Kept != 1 {
			t.Errorf("%+v", s)
		}
		if _, n := api.now(); n != 0 {
			t.Error("still follows the API server")
		}
		pass(DefaultGrace + DefaultInterval)
		if got := names(k); got != "a c" {
			t.Errorf("pods %q", got)
		}
	})
}

// A kubelet that starts lists static pods before the others; those whose processes run stay here.
func TestKeeperKeepsWhatVanished(t *testing.T) {
	t.Parallel()
	ending := pod("d")
	ending.Deleted = time.Unix(1, 0)
	finished := pod("e")
	finished.Phase = PhaseSucceeded
	var mu sync.Mutex
	alive := map[string]bool{"b": true}
	kubelet := &script{}
	kubelet.say(nil, pod("a"), pod("b"), pod("c"), ending, finished)
	o := Options{Kubelet: kubelet, Alive: func(uid string) bool {
		mu.Lock()
		defer mu.Unlock()
		return alive[uid]
	}}
	keep(t, o, func(k *Keeper) {
		kubelet.say(nil, pod("a"))
		pass(DefaultInterval)
		if got := names(k); got != "a b c" {
			t.Errorf("pods %q: those that were ending may go, others not yet", got)
		}
		pass(DefaultGrace + DefaultInterval)
		if got := names(k); got != "a b" {
			t.Errorf("pods %q: c has had its time, b still runs", got)
		}
		kubelet.say(nil, pod("a"), pod("b"))
		pass(DefaultInterval)
		if k.State().Kept != 0 {
			t.Errorf("kept %d", k.State().Kept)
		}
		kubelet.say(nil, pod("a"))
		pass(DefaultGrace)
		mu.Lock()
		delete(alive, "b")
		mu.Unlock()
		pass(2 * DefaultInterval)
		if got := names(k); got != "a" || k.State().Kept != 0 {
			t.Errorf("pods %q, kept %d", got, k.State().Kept)
		}
	})
}

func TestKeeperWithoutSources(t *testing.T) {
	t.Parallel()
	keep(t, Options{}, func(k *Keeper) {
		pass(time.Minute)
		if s := k.State(); len(k.Snapshot().Pods) != 0 || k.Snapshot().Generation != 0 || !strings.Contains(s.Degraded(), "neither") {
			t.Errorf("%+v", s)
		}
	})
	failing := &script{}
	failing.say(errors.New("403"))
	keep(t, Options{Kubelet: failing}, func(k *Keeper) {
		pass(time.Minute)
		if s := k.State(); s.Source != FromNobody || s.Degraded() != "no answer yet: 403" {
			t.Errorf("%+v", s)
		}
	})
}

func TestSnapshotFinds(t *testing.T) {
	t.Parallel()
	list, _ := recorded(t, "kubelet-pods.json")
	mirror := *list[0]
	mirror.APIUID = "99999999"
	s := newSnapshot(3, time.Time{}, append(list, &mirror))
	if p, c, ok := s.Container(strings.Repeat("4", 64)); !ok || p.Name != "web-0" || c.Name != "app" {
		t.Errorf("%v %v %v", p, c, ok)
	}
	if _, _, ok := s.Container("containerd://" + strings.Repeat("4", 64)); ok {
		t.Error("found an id with its scheme")
	}
	if p, ok := s.Pod("a5e4d8c7b6a5f4e3d2c1b0a998877665"); !ok || p.APIUID != "99999999" || len(s.Pods) != len(list) {
		t.Errorf("%+v, %d pods: a static pod and its mirror are one", p, len(s.Pods))
	}
}
