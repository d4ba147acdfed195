// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// reportEvery is the interval of the NodeMetric of reported.
const reportEvery = 10 * time.Second

// clock sets the time of day two hours on, and back. By either time koordlet reports, best effort yields to a load and has its share again, what
// the NodeSLO says comes and goes; what was in force stays so, and nobody is evicted. No certificate ends by it: those of the lab are of a day.
func (n *served) clock() {
	n.t.Helper()
	busy, ls := n.ready("busy"), n.ready("ls")
	pods := []cluster.Object{busy, ls, n.ready("be"), n.ready("second"), n.ready("lsr"), n.ready("whole")}
	whole := "cpuset.cpus=" + n.file(n.dir(pods[5]), "cpuset.cpus")
	seen := n.disruptions()
	quota := func() (int, error) { return quotaIn(n.besteffort(), "cpu.max") }
	calm := n.a.granted(20*time.Second, grant{what: "quota of best effort before the clock is set", read: quota, least: 1500})
	stands := func() error {
		if got, err := quota(); err != nil || got < 20 {
			return fmt.Errorf("best effort has a quota of %d, %v", got, err)
		}
		if got := seen(); len(got) != 0 {
			return fmt.Errorf("%+v are to go", got)
		}
		return nil
	}
	var ahead time.Duration
	set := func(by time.Duration) (at time.Time) {
		n.jump(by)
		ahead += by
		at = time.Now()
		n.a.ticks(3, stands)
		n.have(n.ready("lsr"), lsrHas...)
		n.have(n.ready("whole"), whole)
		return at
	}
	defer func() { n.jump(-ahead) }() // of a step that failed

	at := set(2 * time.Hour)
	stop := n.spinIn([]string{n.dir(busy)}, 3)
	loaded := n.a.granted(20*time.Second, grant{
		what: "quota of best effort two hours on, while an LS pod uses three CPUs", read: quota, busy: 3, least: 20, most: calm - 800,
	})
	n.put(map[string]any{"cpuBurstStrategy": map[string]any{"policy": "cpuBurstOnly", "cpuBurstPercent": 1000}})
	n.have(ls, "cpu.max.burst=50000", "pod cpu.max.burst=50000")
	on := n.reportsAt(at, pods)

	at = set(-2 * time.Hour)
	n.have(ls, "cpu.max.burst=50000", "pod cpu.max.burst=50000")
	stop()
	after := n.a.granted(20*time.Second, grant{what: "quota of best effort after the clock was set back", read: quota, least: loaded + 800})
	n.put(map[string]any{"cpuBurstStrategy": nil})
	n.have(ls, "cpu.max.burst=0", "pod cpu.max.burst=0")
	back := n.reportsAt(at, pods)

	if err := stands(); err != nil {
		n.t.Error(err)
	}
	n.untouched(pods...)
	n.a.lives()
	n.tell("the clock went two hours on and back: cpu.max of best effort, in thousandths of a CPU: calm %d, two hours on, while an LS pod uses three CPUs, %d, afterwards %d; "+
		"reports of %s, then of %s", calm, loaded, after, on.Format(time.TimeOnly), back.Format(time.TimeOnly))
}

// reportsAt waits for two reports, each within two intervals, that are of the time that it is, since then, and have the use of these pods.
func (n *served) reportsAt(since time.Time, pods []cluster.Object) (last time.Time) {
	n.t.Helper()
	for range 2 {
		n.eventually(2*reportEvery, func() error {
			o, err := n.c.Admin().Get(n.t.Context(), nodeMetrics+"/"+n.k.Node)
			if err != nil {
				return err
			}
			at, err := time.Parse(time.RFC3339, o.Str("status", "updateTime"))
			if err != nil {
				return err
			}
			// Cut to seconds there; and without the reading of the other clock times are compared by the time of day.
			if now := time.Now().Round(0); at.Before(since.Truncate(time.Second)) || at.After(now) || !at.After(last) {
				return fmt.Errorf("the newest report is of %s, want one since %s, after %s; it is %s", at, since.Round(0).UTC(), last, now.UTC())
			}
			if without := unreported(o, pods); len(without) > 0 {
				return fmt.Errorf("the report of %s has no use of %s", at, strings.Join(without, ", "))
			}
			last = at
			return nil
		})
	}
	return last
}

// unreported are the pods of whose memory a NodeMetric does not tell.
func unreported(metric cluster.Object, pods []cluster.Object) (without []string) {
	list, _ := metric.At("status", "podsMetric").([]any)
	has := map[string]bool{}
	for i := range list {
		at := func(steps ...any) string { return metric.Str(append([]any{"status", "podsMetric", i}, steps...)...) }
		has[at("name")] = at("podUsage", "resources", "memory") != ""
	}
	for _, p := range pods {
		if name := p.Str("metadata", "name"); !has[name] {
			without = append(without, name)
		}
	}
	return without
}
