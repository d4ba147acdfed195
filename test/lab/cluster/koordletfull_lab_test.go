// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// full: pods hold memory, each a fixed amount that nobody else has and that is no page cache, and the mark of eviction sinks by 1 % of
// the node at a time to where the node is. While the kernel says that it is below the mark nobody goes; when it is above hoard
// does: its priority is the lowest, and of those of that priority it holds the most. It takes its time to end, and the node stays above the
// mark meanwhile: what it holds counts as on its way, and nobody else is asked to go. What goes by what the kernel counts of its
// class is what it held, the node has it again, and who stays holds what it held: one of the same priority, one that holds more at
// a higher priority, and LS.
//
// hoard holds 4 % of the node. An eviction is to free between 1 and 2 %, and while hoard is on its way between 2 and 3 %. On a node of 24 GiB all
// hold 2 GiB.
func (n *governed) full(t *testing.T) {
	total, available := memory(t)
	size := total * 4 / 100
	if total-available+3*size > total*85/100 {
		t.Fatalf("%.0f of %.0f MiB are in use: there is no room for pods that hold twice %.0f", (total-available)/mib, total/mib, size/mib)
	}
	n.patch(t, threshold(map[string]any{"enable": false}))
	n.inForce(t)
	hoard := n.holder(t, "hoard", "BE", "batch-low", size, 15) // as long as the pause after a round, and several rounds more
	stay := map[string]*holding{
		"crumb":   n.holder(t, "crumb", "BE", "batch-low", 32*mib, 1),
		"keeper":  n.holder(t, "keeper", "BE", "batch-high", size+64*mib, 1),
		"service": n.holder(t, "service", "LS", "", 64*mib, 1),
	}
	for _, h := range stay {
		n.settled(t, h)
	}
	n.settled(t, hoard)
	n.beyond(t, stay)

	since := time.Now()
	mark := n.sinks(t, hoard, since)
	before := n.leaves(t, hoard, mark)
	after := n.returns(t, hoard, before)
	t.Logf("MiB in use of %.0f (free on lists of CPUs beside them, in use by the tier): %s with hoard's %.0f, %s without, the mark is at %.0f",
		total/mib, before, before.pod.anon/mib, after, mark*total/100/mib)
	n.promised(t, since, mark, before.pod.anon)
	if err := n.told(t, "hoard", "Evicted", "Warning", "BEMemoryEvict"); err != nil {
		t.Error(err)
	}

	n.ticksTo(t, n.ticked(t)+8) // longer than the pause after a round
	if now := n.balance(t, hoard); now.inUse() > mark*total/100 {
		t.Fatalf("others on this machine use more meanwhile: %s, the mark is at %.0f: nothing is shown of who stays", now, mark*total/100/mib)
	}
	if got, want := n.evictedSince(t, since), []string{"hoard " + hoard.pod.Str("metadata", "uid") + " 201"}; !slices.Equal(got, want) {
		t.Errorf("evictions %q, want %q", got, want)
	}
	for name, h := range stay {
		n.untouched(t, name)
		n.same(t, name, h)
	}
	n.patch(t, threshold(map[string]any{"enable": false}))
	n.remove(t, "crumb", "keeper", "service")
	n.inForce(t)
}

// holding is a pod that holds so much.
type holding struct {
	pod      cluster.Object
	size     float64
	had      charge // when it had all
	restarts int
}

// holder makes a pod that holds memory: dd has read it and waits for a reader of its pipe. It goes on holding it for all the seconds that it is
// given to end. It is let out of memory QoS: where there is memory.high, a node that is close to its mark would hold those of best effort to
// what they have for a minute, which other tests show.
func (n *governed) holder(t *testing.T, name, class, priority string, size float64, grace int) *holding {
	t.Helper()
	pod := n.make(t, name, map[string]any{
		"labels": map[string]any{"koordinator.sh/qosClass": class}, "annotations": map[string]any{"koord-rt.dev/opt-out": "memory-qos"},
	}, map[string]any{"priorityClassName": priority, "terminationGracePeriodSeconds": grace},
		fmt.Sprintf(`trap "" TERM; dd if=/dev/zero bs=%.0f count=1 | sleep 2147483647`, size))
	return &holding{pod: pod, size: size}
}

// settled waits until a pod holds what it is to hold, by the kernel's count and by koordlet's, as anonymous memory.
func (n *governed) settled(t *testing.T, h *holding) {
	t.Helper()
	name := h.pod.Str("metadata", "name")
	h.pod = n.ready(t, name)
	h.restarts = restarts(h.pod)
	series := regexp.MustCompile(`(?m)^koord_rt_koordlet_pod_memory_bytes\{[^}]*pod_name="` + name + `"[^}]*\} (\S+)$`)
	eventually(t, 60*time.Second, func() error {
		got, here := n.charge(t, n.podDir(h.pod, "memory"))
		if !here || got.anon < h.size || got.used-got.anon > 24*mib {
			return fmt.Errorf("%s holds %s, want %.0f MiB anonymous", name, got, h.size/mib)
		}
		text, err := n.asks(t, metrics, nil)
		if err != nil {
			return err
		}
		m := series.FindSubmatch(text)
		if m == nil {
			return fmt.Errorf("koordlet does not tell the memory of %s", name)
		}
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err == nil && math.Abs(v-got.anon) > 4*mib+0.02*got.anon {
			err = fmt.Errorf("%s holds %s, koordlet tells %.0f MiB", name, got, v/mib)
		}
		h.had = got
		return err
	})
	if got, _ := n.charge(t, n.podDir(h.pod, "memory")); math.Abs(got.anon-h.had.anon) > mib {
		t.Fatalf("%s holds %s and then %s", name, h.had, got)
	}
}

// same fails unless a pod is the one that it was and holds what it held.
func (n *governed) same(t *testing.T, name string, h *holding) {
	t.Helper()
	if got := restarts(n.ready(t, name)); got != h.restarts {
		t.Errorf("%s was started again: %d, before %d", name, got, h.restarts)
	}
	if got, here := n.charge(t, n.podDir(h.pod, "memory")); !here || math.Abs(got.anon-h.had.anon) > mib {
		t.Errorf("%s holds %s, before %s", name, got, h.had)
	}
}

// sinks lowers the mark until hoard is to go, and returns the one that is in force then.
func (n *governed) sinks(t *testing.T, hoard *holding, since time.Time) (mark float64) {
	t.Helper()
	b := n.balance(t, hoard)
	for mark = math.Ceil(b.inUse()/b.total*100) + 1; mark > 1; mark-- {
		n.sink(t, int(mark))
		n.inForce(t)
		if n.under(t, hoard, mark*b.total/100, since) {
			return mark
		}
	}
	t.Fatal("the mark is at 1 % and nobody has gone")
	return 0
}

// sink puts the mark at a part of the node, in percent; an eviction leads to 1 % below.
func (n *governed) sink(t *testing.T, mark int) {
	t.Helper()
	n.patch(t, threshold(map[string]any{ // a pod that is held to next to no CPU is slow to end
		"enable": true, "memoryEvictThresholdPercent": mark, "memoryEvictLowerPercent": mark - 1,
		"cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 100, "cpuSuppressMinPercent": 90,
	}))
}

// under looks at hoard and at the node while a mark is in force: until hoard is to go, as the API server says, which it may be when the node
// uses more, or until the node has used less and nobody was asked to go. It is an error when the node uses more all the time and hoard stays.
func (n *governed) under(t *testing.T, hoard *holding, mark float64, since time.Time) (goes bool) {
	t.Helper()
	first := n.ticked(t)
	least, most := math.Inf(1), 0.0
	for {
		b, ticks := n.balance(t, hoard), n.ticked(t)-first
		least, most = min(least, b.inUse()), max(most, b.inUse())
		pod, err := n.c.Admin().Get(t.Context(), batchPods+"hoard")
		if err != nil {
			t.Fatal(err)
		}
		if pod.Str("metadata", "deletionTimestamp") != "" {
			if most < mark-16*mib {
				t.Errorf("hoard is to go though the node used %.0f MiB at most, and the mark is at %.0f", most/mib, mark/mib)
			}
			return true
		}
		time.Sleep(20 * time.Millisecond) // koordlet answers in between
		if ticks >= 2 && least <= mark && len(n.evictedSince(t, since)) == 0 {
			return false
		}
		if ticks > 12 {
			t.Fatalf("the node has used %.0f MiB at least for 12 ticks, the mark is at %.0f, and hoard holds all; asked for: %q",
				least/mib, mark/mib, n.evictedSince(t, since))
		}
	}
}

// leaves looks on while hoard is on its way and holds all. The mark sinks by another 1 % meanwhile: the node is above it then whatever others give,
// and with every tick koordlet finds that more is to be released than crumb holds. Once its pause of 4 s is over, nothing but what hoard holds
// keeps it from asking keeper to go as well. The last look but one at the kernel while hoard held all is returned.
func (n *governed) leaves(t *testing.T, hoard *holding, mark float64) (last balance) {
	t.Helper()
	const least = 6
	n.sink(t, int(mark)-1)
	above := map[float64]bool{} // ticks of koordlet
	var next balance            // its pod held all, but the class, which is read after it, may have begun to lose
	begun := time.Now()
	eventually(t, 2*time.Minute, func() error {
		b, tick := n.balance(t, hoard), n.ticked(t)
		if b.pod.anon < hoard.had.anon-4*mib {
			return nil
		}
		if last, next = next, b; b.inUse() > (mark-1)*b.total/100 {
			above[tick] = true
		}
		return fmt.Errorf("hoard still holds %s", b.pod)
	})
	n.sink(t, int(mark))
	took := time.Since(begun).Round(time.Millisecond)
	if len(above) < least {
		t.Fatalf("hoard held all for %d ticks and %s with the node above the mark, want %d ticks: nothing is shown of who is on its way", len(above), took, least)
	}
	t.Logf("hoard held all for %d ticks and %s while it was on its way", len(above), took)
	n.inForce(t)
	return last
}

// returns waits until the kernel has taken back what hoard held: from its class, which counts all that is below it, and for the node.
func (n *governed) returns(t *testing.T, hoard *holding, before balance) (after balance) {
	t.Helper()
	held := before.pod
	eventually(t, 60*time.Second, func() error {
		after = n.balance(t, hoard)
		used, anon, node := before.tier.used-after.tier.used, before.tier.anon-after.tier.anon, before.inUse()-after.inUse()
		switch {
		case after.pod.anon > mib:
			return fmt.Errorf("hoard still holds %s", after.pod)
		case used < held.anon-mib || anon < held.anon-mib:
			return fmt.Errorf("of hoard's %s the tier has lost %.0f MiB, of them %.0f anonymous", held, used/mib, anon/mib)
		case node < 0.9*held.anon:
			return fmt.Errorf("of hoard's %s the node has %.0f MiB again: %s, before %s", held, node/mib, after, before)
		}
		return nil
	})
	// Who stays in the class has given nothing.
	if anon := before.tier.anon - after.tier.anon; anon > held.anon+2*mib {
		t.Errorf("the tier has lost %.0f MiB of anonymous memory, hoard held %.0f", anon/mib, held.anon/mib)
	}
	n.gone(t, "hoard")
	return after
}

// evictedSince are the evictions that koordlet has asked for: name, UID and answer.
func (n *governed) evictedSince(t *testing.T, since time.Time) (out []string) {
	t.Helper()
	for _, c := range n.audit.calls(t, func(c *call) bool { return c.what() == "create pods/eviction" && c.At.After(since) }) {
		out = append(out, fmt.Sprintf("%s %s %d", c.Object.Name, c.body(t).Str("deleteOptions", "preconditions", "uid"), c.Response.Code))
	}
	return out
}

var promise = regexp.MustCompile(`without [0-9.]+ [KMG]iB on free lists of CPUs is above ([0-9.]+)%.*promised ([0-9.]+ [MG]iB), its use fell by ([0-9.]+ [MG]iB), the node's went from ([0-9.]+ [MG]iB) to ([0-9.]+ [MG]iB)`)

// promised: what koordlet says that it has wanted of hoard, and that its end has released, is what the pod held by the kernel's
// count. The node's figures are koordlet's own readings, before and after.
func (n *governed) promised(t *testing.T, since time.Time, mark, held float64) {
	t.Helper()
	var word string
	eventually(t, 20*time.Second, func() (err error) {
		word, err = n.released(t, since, "hoard", "gone")
		return err
	})
	t.Log(word)
	m := promise.FindStringSubmatch(word)
	if m == nil {
		t.Fatalf("the audit says of hoard: %s; want the lists of CPUs, the mark, what was promised and what came", word)
	}
	if at, err := strconv.ParseFloat(m[1], 64); err != nil || at < mark || at > mark+1 { // it may have been decided while the mark sank
		t.Errorf("evicted above %s %%, the mark is at %g %%", m[1], mark)
	}
	var figures []float64
	for _, text := range m[2:] {
		figures = append(figures, amount(t, strings.TrimSuffix(strings.ReplaceAll(text, " ", ""), "B")))
	}
	for _, got := range figures[:2] {
		if math.Abs(got-held) > 0.05*held {
			t.Errorf("promised and released %q, hoard held %.0f MiB", m[2:4], held/mib)
		}
	}
	if fell := figures[2] - figures[3]; fell < held/2 { // others use more or less meanwhile
		t.Errorf("koordlet says that the node has %.0f MiB of hoard's %.0f again", fell/mib, held/mib)
	}
}
