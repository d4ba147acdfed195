// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/unit"
)

// topView draws one picture.
type topView struct {
	strings.Builder
	s   *status.Entry
	a   *status.Agent
	now time.Time
	err error
}

// Widths of bars in columns.
const (
	nodeBar  = 30
	classBar = 16
	podBar   = 10
)

func (v *topView) line(format string, args ...any) { fmt.Fprintf(v, format+"\n", args...) }

// header says whose figures these are, and how old.
func (v *topView) header() {
	name := v.a.Node.Name
	if name == "" {
		name = "this node"
	}
	age := v.s.Age(v.now, boottime.Now())
	if !v.s.Alive {
		v.line("%s: %s is NOT RUNNING since %s or later; its last figures:", cell(name), cell(v.s.ProgramVersion),
			v.s.Written.UTC().Format(time.RFC3339))
		return
	}
	v.line("%s: %s, up %s, figures of %s ago", cell(name), cell(v.s.ProgramVersion), span(v.now.Sub(v.s.Start)), span(age))
}

// node draws the machine: use, and what of it belongs to nobody.
func (v *topView) node() {
	n := &v.a.Node
	v.line("")
	v.line("CPU       %s  %s", bar(share(n.Used.CPU, n.Capacity.CPU), nodeBar), ofCPU(n.Used.CPU, n.Capacity.CPU, n.Requests.CPU))
	v.line("memory    %s  %s", bar(share(n.Used.Memory, n.Capacity.Memory), nodeBar),
		ofMemory(n.Used.Memory, n.Capacity.Memory, n.Requests.Memory))
	v.line("system    CPU %s, memory %s", cpuText(n.System.CPU), memoryText(n.System.Memory))
	v.line("pressure  CPU %s, memory %s, IO %s (some, 10 s)", percent(n.Pressure.CPU), percent(n.Pressure.Memory), percent(n.Pressure.IO))
	if n.Batch != (status.Amounts{}) || n.Mid != (status.Amounts{}) {
		v.line("offers    batch %s, mid %s", amountsText(n.Batch), amountsText(n.Mid))
	}
	v.be()
}

// be says what holds best-effort pods down.
func (v *topView) be() {
	be := &v.a.BE
	text := "not held down"
	switch {
	case be.Mode == "" || be.Mode == "unknown":
		return
	case be.Limit == nil:
	case be.CPUs != "":
		text = fmt.Sprintf("%s CPUs: %s", cpuText(be.Limit), cell(be.CPUs))
	default:
		text = fmt.Sprintf("%s CPUs by quota", cpuText(be.Limit))
	}
	v.line("BE        %s", text)
	v.sentence("          ", be.Reason)
}

// sentence prints text with breaks between words, indented.
func (v *topView) sentence(indent, text string) {
	if text == "" {
		return
	}
	for _, l := range broken(printable(text)) {
		v.line("%s%s", indent, l)
	}
}

func ofCPU(used *unit.MilliCPU, capacity, requested unit.MilliCPU) string {
	return fmt.Sprintf("%s of %s CPUs (%s), %s requested", cpuText(used), cpuText(&capacity), percent(share(used, capacity)), cpuText(&requested))
}

func ofMemory(used *unit.Bytes, capacity, requested unit.Bytes) string {
	return fmt.Sprintf("%s of %s (%s), %s requested", memoryText(used), memoryText(&capacity), percent(share(used, capacity)), memoryText(&requested))
}

func amountsText(a status.Amounts) string {
	if a == (status.Amounts{}) {
		return "nothing"
	}
	return cpuText(&a.CPU) + " CPUs and " + memoryText(&a.Memory)
}

// classes draws a row for each QoS class; bars are shares of the node.
func (v *topView) classes() {
	n := &v.a.Node
	var rows [][]string
	for i := range v.a.Classes {
		c := &v.a.Classes[i]
		if c.Pods == 0 && (c.Name == "SYSTEM" || c.Name == "none") {
			continue
		}
		rows = append(rows, []string{
			c.Name, strconv.Itoa(c.Pods),
			bar(share(c.Used.CPU, n.Capacity.CPU), classBar), cpuText(c.Used.CPU), orNone(cpuText, c.Requests.CPU),
			bar(share(c.Used.Memory, n.Capacity.Memory), classBar), memoryText(c.Used.Memory), orNone(memoryText, c.Requests.Memory),
		})
	}
	v.table([]string{"CLASS", "PODS", "CPU", "USED", "REQUESTED", "MEMORY", "USED", "REQUESTED"}, rows)
}

// pods draws a row for each pod, and says how many were cut off; bars are shares of the node.
func (v *topView) pods(list []status.Pod, cut int) {
	if len(v.a.Pods) == 0 {
		v.line("")
		v.line("no pods%s", v.whyNone())
		return
	}
	n := &v.a.Node
	rows := make([][]string, 0, len(list))
	for i := range list {
		p := &list[i]
		rows = append(rows, []string{
			p.Namespace + "/" + p.Name, p.Class,
			bar(share(p.Used.CPU, n.Capacity.CPU), podBar), cpuText(p.Used.CPU), orNone(cpuText, p.Requests.CPU), orNone(cpuText, p.Limits.CPU),
			percent(p.Throttled),
			memoryText(p.Used.Memory), orNone(memoryText, p.Requests.Memory), orNone(memoryText, p.Limits.Memory),
			percent(p.Pressure.CPU), percent(p.Pressure.Memory), percent(p.Pressure.IO),
		})
	}
	v.table([]string{"POD", "CLASS", "CPU", "USED", "REQUEST", "LIMIT", "THROTTLED", "MEMORY", "REQUEST", "LIMIT", "PSI CPU", "PSI MEM", "PSI IO"}, rows)
	if cut > 0 {
		v.line("%d of %d pods; -n 0 lists all", len(list), len(list)+cut)
	}
	if n := v.a.PodsLeftOut; n > 0 {
		v.line("%d more pods run; only those with most CPU stand in the status file", n)
	}
}

// whyNone is why no pods are known, where that is not because none run.
func (v *topView) whyNone() string {
	i := slices.IndexFunc(v.a.Sources, func(s status.Source) bool { return s.Name == "pods" && s.State != status.StateActive })
	if i < 0 {
		return ""
	}
	return " are known: " + printable(v.a.Sources[i].Reason)
}

func (v *topView) table(head []string, rows [][]string) {
	v.line("")
	if err := printTable(v, head, rows); err != nil && v.err == nil {
		v.err = err
	}
}

// warnings are what does not work, and the newest eviction, a line each.
func (v *topView) warnings() {
	first := true
	warn := func(what, text string) {
		if first {
			v.line("")
			first = false
		}
		v.line("%-9s %s", what, printable(text))
	}
	for _, s := range v.a.Sources {
		if s.State == status.StateDegraded {
			warn("degraded", s.Name+": "+s.Reason)
		}
	}
	for _, l := range v.a.Loops {
		if l.Err != "" {
			warn("failed", l.Name+": "+l.Err)
		}
	}
	if n := len(v.a.Evictions); n > 0 {
		e := &v.a.Evictions[n-1]
		warn(e.Outcome, fmt.Sprintf("%s/%s, %s ago, %s: %s", e.Namespace, e.Name, span(v.now.Sub(e.Time)), e.Feature, e.Reason))
	}
}

// machinery is the agent itself: loops, what it goes without, evictions.
func (v *topView) machinery() {
	var rows [][]string
	for _, l := range v.a.Loops {
		decision, at := l.Decision, "-"
		if l.Err != "" {
			decision = strings.TrimPrefix(decision+"; failed: "+l.Err, "; ")
		}
		if !l.At.IsZero() {
			at = span(v.now.Sub(l.At)) + " ago"
		}
		rows = append(rows, []string{l.Name, l.State, at, decision})
	}
	v.sentences([]string{"LOOP", "STATE", "DECIDED", "DECISION"}, rows)
	rows = nil
	for _, list := range [][]status.Source{v.a.Sources, v.a.Collectors} {
		for _, s := range list {
			if s.State != status.StateActive {
				rows = append(rows, []string{s.Name, s.State, s.Reason})
			}
		}
	}
	v.sentences([]string{"WITHOUT", "STATE", "WHY"}, rows)
	rows = nil
	for i := range v.a.Evictions {
		e := &v.a.Evictions[i]
		rows = append(rows, []string{e.Namespace + "/" + e.Name, e.Class, span(v.now.Sub(e.Time)) + " ago", e.Outcome, e.Feature, e.Reason})
	}
	v.sentences([]string{"EVICTED", "CLASS", "WHEN", "OUTCOME", "FEATURE", "WHY"}, rows)
}

// sentences is a table whose last column breaks; none without rows.
func (v *topView) sentences(head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	v.line("")
	if err := printSentences(v, head, rows); err != nil && v.err == nil {
		v.err = err
	}
}
