// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package iocost decides the cost control of disks, which is the node's and no pod's: io.cost.qos and io.cost.model of the root cgroup, from
// resourceQOSStrategy.cgroupRoot.blkioQOS. Without it the kernel divides no disk by io.weight.
//
//	io.cost.qos    enable=1 ctrl=user rpct=readLatencyPercent rlat=readLatency wpct=writeLatencyPercent wlat=writeLatency
//	io.cost.model  ctrl=user model=linear rbps=modelReadBPS rseqiops=modelReadSeqIOPS rrandiops=modelReadRandIOPS wbps=… wseqiops=… wrandiops=…
//
// Latencies are µs in both. As upstream, what is left out of the four is 95 % and 3000 µs; a percentage or latency of 0 leaves that direction
// out of the control (rpct=0.00). With none of the four the disk's own line is only switched on, so that the kernel's targets hold, or the
// administrator's. The model is written with enableUserModel and all six figures, else it stays whose it was. Bounds of the rate (min, max) have
// no field: they stay what they are.
//
// Example: {name: sda, type: device, ioCfg: {readLatency: 5000}} becomes "8:0 enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=95.00 wlat=3000".
//
// What a line was before is kept from the first step that changes it; when the strategy no longer names the disk it is given back, unless
// somebody else has changed it meanwhile. A line that somebody else sets is set again, ten times; then it is theirs until the strategy says
// another one. The kernel has no way to take a line away: a disk that had none gets the kernel's own figures, switched off.
//
// Input is an Input with the lines as they stand, and the State of the step before; output a plan with reasons. It imports model, api, policy/lent and the
// standard library only; never os, net, log, fmt or time.
package iocost

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/lent"
)

// Knobs are the files, all of [plan.LevelNode].
func Knobs() []plan.Knob { return []plan.Knob{plan.IOCostQoS, plan.IOCostModel} }

// Input is what one step looks at.
type Input struct {
	// Blocks are those of cgroupRoot, where they are to act.
	Blocks []strategy.Block
	Kernel *node.Kernel
	// Ceded knobs are not written, and what was ours of them goes back.
	Ceded plan.Knobs
	// Lines are what the files say, by the disk's number. A file that is missing does not exist on this kernel.
	Lines map[plan.Knob]map[string]string
}

// State is what a step leaves for the next; it survives a restart of the agent as JSON.
type State struct {
	Held []Held `json:"held,omitempty"`
}

// Held is a line that we have changed: Ours are the words that we wrote, Original those that make what stood there before.
type Held = lent.Held[string]

// Output of a step.
type Output struct {
	// Plan has what differs from what is in force; nil means that nothing is to be written.
	Plan plan.Plan
	// Problems name the fields of the strategy that cannot act, and why.
	Problems []string
	// Reason is what is held and why, also where it is in force already; empty for nothing.
	Reason string
}

// Step decides once.
func Step(s State, in Input) (State, Output) {
	w := &work{in: &in, s: &s}
	for i := range in.Blocks {
		w.block(i)
	}
	w.next.Held = lent.Back(s.Held, w.next.Held, w.line, plan.CostHeld,
		func(k plan.Knob, h *Held) {
			const reason = "the strategy no longer wants it: back to what it was"
			w.set(k, h.Device, h.Original, reason)
			w.tell(k, h.Device, reason)
		})
	return w.next, w.out
}

// work is one step in progress.
type work struct {
	in   *Input
	s    *State
	next State
	out  Output
	// seen are the numbers of the disks of earlier blocks.
	seen []string
}

// line is what stands for a disk; ok is false where there is no file.
func (w *work) line(k plan.Knob, device string) (line string, ok bool) {
	lines, ok := w.in.Lines[k]
	if line = lines[device]; line == "" {
		line = plan.CostOff(k)
	}
	return line, ok
}

func (w *work) set(k plan.Knob, device, words, reason string) {
	w.out.Plan = append(w.out.Plan, plan.Setting{
		Target: plan.Target{Level: plan.LevelNode}, Knob: k, Key: device, Value: plan.Text(words), Owner: protocol.FeatureBlkIO, Reason: reason,
	})
}

// tell adds to the Reason.
func (w *work) tell(k plan.Knob, device, reason string) {
	if w.out.Reason != "" {
		w.out.Reason += "; "
	}
	w.out.Reason += k.String() + " of " + device + ": " + reason
}

// at names a block, and a field of it.
func at(i int, name, field string) string {
	out := "resourceQOSStrategy.cgroupRoot.blkioQOS.blocks[" + strconv.Itoa(i) + "] " + strconv.QuoteToASCII(name)
	if field != "" {
		out += " " + field
	}
	return out
}

// stacked are devices without a queue of requests, for which the kernel has no cost control (block/blk-iocost.c: EOPNOTSUPP). A write that always
// fails would be tried with every tick.
var stacked = [...]string{"dm-", "mapper/", "md", "ram", "zram"}

// block plans the lines of one disk.
func (w *work) block(i int) {
	b := &w.in.Blocks[i]
	problem := func(field, why string) { w.out.Problems = append(w.out.Problems, at(i, b.Name, field)+": "+why) }
	if b.Type != strategy.BlockDevice {
		problem("", b.Type+" is not resolved here: name its disk as a block of type "+strategy.BlockDevice)
		return
	}
	device, known := w.in.Kernel.Disks[b.Name]
	switch {
	case !known:
		problem("", "this node has no such block device")
		return
	case slices.ContainsFunc(stacked[:], func(prefix string) bool { return strings.HasPrefix(strings.TrimPrefix(b.Name, "/dev/"), prefix) }):
		problem("", "requests only pass through it, or end in memory: the kernel controls the disks below")
		return
	case slices.Contains(w.seen, device):
		problem("", "an earlier block has this disk, "+device+", by another name")
		return
	}
	w.seen = append(w.seen, device)
	if unused := b.IOCfg.UnusedByRoot(); len(unused) > 0 {
		why := "set nothing here: limits and weights are for classes and pods, and a model needs enableUserModel"
		problem(strings.Join(unused, ", "), why)
	}
	hold := func(k plan.Knob, words, reason string) {
		if w.in.Ceded.Has(k) {
			return
		}
		if why := w.hold(k, device, words, reason); why != "" {
			problem("", why)
			return
		}
		w.tell(k, device, reason)
	}
	switch words, field, why := quality(&b.IOCfg); {
	case why != "":
		problem(field, why)
	case words == "":
		hold(plan.IOCostQoS, switchedOn(w.original(plan.IOCostQoS, device)), "cgroupRoot.blkioQOS names the disk, and no latency")
	default:
		hold(plan.IOCostQoS, "enable=1 ctrl=user "+words, "latencies of cgroupRoot.blkioQOS")
	}
	if b.IOCfg.EnableUserModel == nil || !*b.IOCfg.EnableUserModel {
		return
	}
	if words, field, why := model(&b.IOCfg); why != "" {
		problem(field, why)
	} else {
		hold(plan.IOCostModel, "ctrl=user model=linear "+words, "model of cgroupRoot.blkioQOS")
	}
}

// original are the words of what stood before us.
func (w *work) original(k plan.Knob, device string) string {
	if h := lent.Find(w.s.Held, k, device); h != nil {
		return h.Original
	}
	now, _ := w.line(k, device)
	return plan.CostWords(now)
}

// hold wants a line; why says that it is left to somebody else, or that this kernel has none.
func (w *work) hold(k plan.Knob, device, ours, reason string) (why string) {
	now, ok := w.line(k, device)
	if !ok {
		if why = w.in.Kernel.Knobs[k].Why; why == "" {
			why = "this kernel has no " + k.String()
		}
		return why
	}
	h, keep := lent.Want(lent.Find(w.s.Held, k, device), k, device, ours, w.original(k, device), now, plan.CostHeld)
	if keep {
		w.next.Held = append(w.next.Held, h)
	}
	switch {
	case h.Stood:
	case h.Left():
		return "somebody else sets " + k.String() + " to " + strconv.QuoteToASCII(now) + " again and again: it is left to them"
	case h.Lost > 0:
		w.set(k, device, ours, reason+"; somebody else had set "+now)
	default:
		w.set(k, device, ours, reason)
	}
	return ""
}

// switchedOn is a line of io.cost.qos with the control on and everything else as it is.
func switchedOn(words string) string {
	return strings.Replace(words, "enable=0", "enable=1", 1)
}

// Upstream's figures for what the strategy leaves out.
const (
	defaultLatency = 3000
	defaultPercent = 95
	// mostLatency is what the kernel keeps of a latency, 32 bits of µs: beyond it would be cut.
	mostLatency = math.MaxUint32
)

// quality are the words of the targets, "" where the strategy has none; why says which field is bad.
func quality(c *strategy.IOCfg) (words, field, why string) {
	if c.ReadLatency == nil && c.WriteLatency == nil && c.ReadLatencyPercent == nil && c.WriteLatencyPercent == nil {
		return "", "", ""
	}
	var out []string
	for _, d := range [...]struct {
		name, letter     string
		latency, percent *int64
	}{
		{"read", "r", c.ReadLatency, c.ReadLatencyPercent}, {"write", "w", c.WriteLatency, c.WriteLatencyPercent},
	} {
		latency, percent := given(d.latency, defaultLatency), given(d.percent, defaultPercent)
		switch {
		case latency < 0 || latency > mostLatency:
			return "", d.name + "Latency", strconv.FormatInt(latency, 10) + " µs is not within 0 and " + strconv.FormatInt(mostLatency, 10) + ": no targets are set"
		case percent < 0 || percent > 100:
			return "", d.name + "LatencyPercent", strconv.FormatInt(percent, 10) + " is not within 0 and 100: no targets are set"
		case latency == 0 || percent == 0:
			out = append(out, d.letter+"pct=0.00")
		default:
			out = append(out, d.letter+"pct="+strconv.FormatInt(percent, 10)+".00", d.letter+"lat="+strconv.FormatInt(latency, 10))
		}
	}
	return strings.Join(out, " "), "", ""
}

func given(n *int64, otherwise int64) int64 {
	if n == nil {
		return otherwise
	}
	return *n
}

// model are the words of the figures: with one left out the kernel would keep its own, which fit no other disk's.
func model(c *strategy.IOCfg) (words, field, why string) {
	var out, missing []string
	for _, f := range [...]struct {
		name, word string
		n          *int64
	}{
		{"modelReadBPS", "rbps", c.ModelReadBPS}, {"modelReadSeqIOPS", "rseqiops", c.ModelReadSeqIOPS}, {"modelReadRandIOPS", "rrandiops", c.ModelReadRandIOPS},
		{"modelWriteBPS", "wbps", c.ModelWriteBPS}, {"modelWriteSeqIOPS", "wseqiops", c.ModelWriteSeqIOPS}, {"modelWriteRandIOPS", "wrandiops", c.ModelWriteRandIOPS},
	} {
		switch {
		case f.n == nil:
			missing = append(missing, f.name)
		case *f.n < 1:
			return "", f.name, strconv.FormatInt(*f.n, 10) + " is below 1: no model is set"
		default:
			out = append(out, f.word+"="+strconv.FormatInt(*f.n, 10))
		}
	}
	if len(missing) > 0 {
		return "", "enableUserModel", "needs all six figures, and " + strings.Join(missing, ", ") + " is missing: no model is set"
	}
	return strings.Join(out, " "), "", ""
}
