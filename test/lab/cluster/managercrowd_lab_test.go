// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// Writers of a crowd, for how long they write, and the pause of each between two writes: together up to 250 a second.
const (
	crowdSize  = 50
	crowdTime  = 5 * time.Second
	crowdPause = 200 * time.Millisecond
)

// writer is one of the crowd.
type writer struct {
	name, path string
	// wreck takes what the manager wrote away, nil for one who writes what is its own.
	wreck map[string]any
	// locked writes the whole object by its version, as most controllers do, and tries again after a conflict.
	locked bool
	// value was written last; writes and conflicts are counted.
	value, writes, conflicts int
	err                      error
}

// crowd are writers of the node's three objects: a fifth of them takes away what the manager says, the others have an annotation each.
func (m *managed) crowd() (out []*writer) {
	for i := range crowdSize {
		w := &writer{name: "lab.example/writer-" + strconv.Itoa(i)}
		switch i % 5 {
		case 0, 1:
			w.path, w.locked = "/api/v1/nodes/"+m.k.Node, true
		case 2:
			w.path, w.locked = slos+"/"+m.k.Node, true
		case 3:
			w.path = reports + "/" + m.k.Node
		default:
			w.path, w.wreck = slos+"/"+m.k.Node, map[string]any{"spec": map[string]any{"resourceUsedThresholdWithBE": nil}}
			if i%2 == 0 {
				w.path, w.wreck = reports+"/"+m.k.Node, map[string]any{"spec": map[string]any{"metricCollectPolicy": nil}}
			}
		}
		out = append(out, w)
	}
	return out
}

// run writes until the time is over, and once at least: who writes by a version can be late many times. Nobody keeps time with another.
func (w *writer) run(ctx context.Context, c *cluster.Client, until time.Time) {
	for w.err == nil && ctx.Err() == nil && (w.writes == 0 || time.Now().Before(until)) {
		w.write(ctx, c)
		time.Sleep(crowdPause/2 + rand.N(crowdPause))
	}
}

func (w *writer) write(ctx context.Context, c *cluster.Client) {
	next := w.value + 1
	var err error
	switch {
	case w.wreck != nil:
		_, err = c.Patch(ctx, w.path, cluster.MergePatch, w.wreck)
	case !w.locked:
		_, err = c.Patch(ctx, w.path, cluster.MergePatch, map[string]any{"metadata": map[string]any{"annotations": map[string]any{w.name: strconv.Itoa(next)}}})
	default:
		var o cluster.Object
		if o, err = c.Get(ctx, w.path); err != nil {
			break
		}
		meta, _ := o["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		if annotations == nil {
			annotations = map[string]any{}
			meta["annotations"] = annotations
		}
		annotations[w.name] = strconv.Itoa(next)
		_, err = c.Update(ctx, w.path, o)
	}
	switch {
	case err == nil:
		w.value, w.writes = next, w.writes+1
	case cluster.Refused(err, "Conflict"):
		w.conflicts++
	default:
		w.err = err
	}
}

// crowded: fifty others write the objects that the manager writes, most of them by their version, some take away what it wrote. It
// keeps at it without losing what others wrote, writes no more than what was taken away, and in the end everything stands.
func (m *managed) crowded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	m.leader(t)
	m.tell(t, map[string]string{keyThreshold: thresholdOff(57)})
	m.slo(t, 60*time.Second, "NodeSLO before the crowd", func(o cluster.Object) bool { return percent(o, "cpuSuppressThresholdPercent") == 57 })
	begun := time.Now()
	writers := m.crowd()
	var all sync.WaitGroup
	for _, w := range writers {
		all.Go(func() { w.run(ctx, m.c.Admin(), begun.Add(crowdTime)) })
	}
	m.tell(t, map[string]string{keyColocation: lentConfig, keyThreshold: thresholdOff(56)}) // amid it all
	all.Wait()
	lasted := time.Since(begun)
	writes, conflicts, wrecks := 0, 0, map[string]int{}
	for _, w := range writers {
		if w.err != nil {
			t.Fatalf("%s: %v", w.name, w.err)
		}
		writes, conflicts = writes+w.writes, conflicts+w.conflicts
		if w.wreck != nil {
			wrecks[w.path] += w.writes
		}
	}
	m.slo(t, 60*time.Second, "NodeSLO after the crowd", func(o cluster.Object) bool {
		return percent(o, "cpuSuppressThresholdPercent") == 56 && percent(o, "memoryEvictThresholdPercent") == 100
	})
	eventually(t, 60*time.Second, func() error {
		if _, ok := m.batchCPU(t); !ok {
			return fmt.Errorf("no batch-cpu")
		}
		o, err := m.c.Admin().Get(ctx, reports+"/"+m.k.Node)
		if err == nil && o.Int("spec", "metricCollectPolicy", "reportIntervalSeconds") != 30 {
			err = fmt.Errorf("NodeMetric after the crowd: %s", o.Compact("spec"))
		}
		return err
	})
	t.Logf("%d writes and %d conflicts of others in %s, all stands after %s", writes, conflicts, lasted.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
	for _, w := range writers {
		o, err := m.c.Admin().Get(ctx, w.path)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Str("metadata", "annotations", w.name); w.wreck == nil && got != strconv.Itoa(w.value) {
			t.Errorf("%s of %s is %q, it wrote %d last", w.name, w.path, got, w.value)
		}
	}
	if conflicts == 0 {
		t.Errorf("%d writes and %d conflicts: nobody was in anybody's way", writes, conflicts)
	}
	m.wroteLittle(t, begun, wrecks)
	m.off(t)
}

// wroteLittle compares what the manager has written since with what was taken away from it: each of that once, and a few changes of its own.
func (m *managed) wroteLittle(t *testing.T, since time.Time, wrecks map[string]int) {
	t.Helper()
	const own = 10
	count := map[string]int{}
	for _, c := range m.audit.read(t, func(c *call) bool {
		return c.User.Name == managerUser && c.Stage == "ResponseComplete" && !c.At.Before(since) && slices.Contains([]string{"patch", "create", "update"}, c.Verb)
	}) {
		count[c.what()]++
	}
	for what, most := range map[string]int{
		"patch nodes/status": own, "patch nodeslos": own + wrecks[slos+"/"+m.k.Node], "patch nodemetrics": own + wrecks[reports+"/"+m.k.Node],
	} {
		if count[what] == 0 || count[what] > most {
			t.Errorf("%s: %d times, want at least once and at most %d; taken away %v", what, count[what], most, wrecks)
		}
	}
	t.Logf("the manager wrote %v, of which taken away %v", count, wrecks)
}
