// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package iocost_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/iocost"
)

func num(n int64) *int64 { return &n }

func disk(c strategy.IOCfg) []strategy.Block {
	return []strategy.Block{{Name: "sda", Type: strategy.BlockDevice, IOCfg: c}}
}

func userModel() strategy.IOCfg {
	return strategy.IOCfg{
		EnableUserModel: new(true), ModelReadBPS: num(1), ModelReadSeqIOPS: num(2), ModelReadRandIOPS: num(3),
		ModelWriteBPS: num(4), ModelWriteSeqIOPS: num(5), ModelWriteRandIOPS: num(6),
	}
}

// node8 has two disks, one under several names, and a kernel with both files.
func node8(blocks []strategy.Block) iocost.Input {
	return iocost.Input{
		Blocks: blocks,
		Kernel: &node.Kernel{Disks: map[string]string{"sda": "8:0", "/dev/sda1": "8:0", "nvme0n1": "259:0", "dm-0": "253:0", "/dev/mapper/data": "253:0"}},
		Lines:  map[plan.Knob]map[string]string{plan.IOCostQoS: {}, plan.IOCostModel: {}},
	}
}

func render(out iocost.Output) string {
	var all []string
	for i := range out.Plan {
		s := &out.Plan[i]
		all = append(all, s.Knob.String()+" "+s.Key+" "+s.Value.String())
	}
	return strings.Join(all, "; ")
}

func TestValues(t *testing.T) {
	t.Parallel()
	const on = "io.cost.qos 8:0 enable=1 ctrl=auto"
	for name, tc := range map[string]struct {
		blocks  []strategy.Block
		change  func(*iocost.Input)
		want    string
		problem string
	}{
		"nothing":              {},
		"a disk by its name":   {blocks: disk(strategy.IOCfg{}), want: on},
		"documented example":   {blocks: disk(strategy.IOCfg{ReadLatency: num(5000)}), want: "io.cost.qos 8:0 enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=95.00 wlat=3000"},
		"all four":             {blocks: disk(strategy.IOCfg{ReadLatency: num(1), WriteLatency: num(2), ReadLatencyPercent: num(3), WriteLatencyPercent: num(100)}), want: "io.cost.qos 8:0 enable=1 ctrl=user rpct=3.00 rlat=1 wpct=100.00 wlat=2"},
		"a direction left out": {blocks: disk(strategy.IOCfg{ReadLatencyPercent: num(90), WriteLatencyPercent: num(0)}), want: "io.cost.qos 8:0 enable=1 ctrl=user rpct=90.00 rlat=3000 wpct=0.00"},
		"a latency of none":    {blocks: disk(strategy.IOCfg{ReadLatency: num(0), WriteLatency: num(9)}), want: "io.cost.qos 8:0 enable=1 ctrl=user rpct=0.00 wpct=95.00 wlat=9"},
		"a model":              {blocks: disk(userModel()), want: on + "; io.cost.model 8:0 ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6"},
		"the kernel's targets, switched on by hand": {blocks: disk(strategy.IOCfg{}), change: func(in *iocost.Input) {
			in.Lines[plan.IOCostQoS]["8:0"] = "enable=1 ctrl=user rpct=90.00 rlat=7 wpct=0.00 wlat=1 min=1.00 max=2.00"
		}},
		"somebody's targets, off": {blocks: disk(strategy.IOCfg{}), change: func(in *iocost.Input) {
			in.Lines[plan.IOCostQoS]["8:0"] = "enable=0 ctrl=user rpct=90.00 rlat=7 wpct=0.00 wlat=1 min=1.00 max=2.00"
		}, want: "io.cost.qos 8:0 enable=1 ctrl=user rpct=90.00 rlat=7 wpct=0.00 wlat=1 min=1.00 max=2.00"},
		"ceded": {blocks: disk(userModel()), change: func(in *iocost.Input) { in.Ceded = plan.KnobSet(plan.IOCostQoS) }, want: "io.cost.model 8:0 ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6"},

		"a volume group": {blocks: []strategy.Block{{Name: "vg", Type: strategy.BlockVolumeGroup}}, problem: `blocks[0] "vg": volumegroup is not resolved here: name its disk`},
		"no such disk":   {blocks: []strategy.Block{{Name: "sdz\n", Type: strategy.BlockDevice}}, problem: `blocks[0] "sdz\n": this node has no such block device`},
		"a mapped disk":  {blocks: []strategy.Block{{Name: "/dev/mapper/data", Type: strategy.BlockDevice}}, problem: "the disks below"},
		"twice": {blocks: append(disk(strategy.IOCfg{}), strategy.Block{Name: "/dev/sda1", Type: strategy.BlockDevice, IOCfg: strategy.IOCfg{ReadLatency: num(1)}}),
			want: on, problem: `blocks[1] "/dev/sda1": an earlier block has this disk, 8:0`},
		"an old kernel": {blocks: disk(strategy.IOCfg{}), change: func(in *iocost.Input) {
			in.Lines, in.Kernel.Knobs[plan.IOCostQoS].Why = nil, "no io.cost.qos: it appeared in Linux 5.4"
		}, problem: `blocks[0] "sda": no io.cost.qos: it appeared in Linux 5.4`},
		"no file, unprobed":        {blocks: disk(strategy.IOCfg{}), change: func(in *iocost.Input) { in.Lines = nil }, problem: "this kernel has no io.cost.qos"},
		"a latency beyond 32 bits": {blocks: disk(strategy.IOCfg{WriteLatency: num(1 << 32)}), problem: `writeLatency: 4294967296 µs is not within 0 and 4294967295: no targets are set`},
		"a negative latency":       {blocks: disk(strategy.IOCfg{ReadLatency: num(-1)}), problem: "readLatency: -1 µs is not within"},
		"more than all":            {blocks: disk(strategy.IOCfg{ReadLatencyPercent: num(101)}), problem: "readLatencyPercent: 101 is not within 0 and 100"},
		"half a model": {blocks: disk(strategy.IOCfg{EnableUserModel: new(true), ModelReadBPS: num(7)}), want: on,
			problem: "enableUserModel: needs all six figures, and modelReadSeqIOPS, modelReadRandIOPS, modelWriteBPS, modelWriteSeqIOPS, modelWriteRandIOPS is missing"},
		"a model of nothing": {blocks: func() []strategy.Block { c := userModel(); c.ModelWriteBPS = num(0); return disk(c) }(), want: on, problem: "modelWriteBPS: 0 is below 1"},
		"limits":             {blocks: disk(strategy.IOCfg{ReadBPS: num(1), IOWeightPercent: num(50), ModelReadBPS: num(1)}), want: on, problem: `blocks[0] "sda" readBPS, ioWeightPercent, modelReadBPS: set nothing here`},
	} {
		in := node8(tc.blocks)
		if tc.change != nil {
			tc.change(&in)
		}
		_, out := iocost.Step(iocost.State{}, in)
		if render(out) != tc.want || len(out.Problems) == 0 != (tc.problem == "") || !strings.Contains(strings.Join(out.Problems, "\n"), tc.problem) {
			t.Errorf("%s: %q, problems %q", name, render(out), out.Problems)
		}
		for i := range out.Plan {
			if s := &out.Plan[i]; s.Reason == "" || s.Target != (plan.Target{}) {
				t.Errorf("%s: %s", name, s)
			}
		}
	}
}

// written is what the kernel makes of a line: of what a plan says, and as it shows the rest.
func written(in *iocost.Input, out iocost.Output) {
	for i := range out.Plan {
		s := &out.Plan[i]
		line := s.Value.String()
		if s.Knob == plan.IOCostQoS && !strings.Contains(line, "min=") {
			line += " min=1.00 max=10000.00"
		}
		in.Lines[s.Knob][s.Key] = line
	}
}

// TestLife: lines are written once, written again when somebody changes them, and come back with the block's end, but not over somebody
// else's; a disk without a line gets the kernel's own figures, off.
func TestLife(t *testing.T) {
	t.Parallel()
	const admins = "enable=1 ctrl=user rpct=90.00 rlat=7000 wpct=0.00 wlat=9000 min=50.00 max=150.00"
	c := userModel()
	c.ReadLatency = num(5000)
	in := node8(append(disk(c), strategy.Block{Name: "nvme0n1", Type: strategy.BlockDevice, IOCfg: strategy.IOCfg{ReadLatencyPercent: num(50)}}))
	in.Lines[plan.IOCostQoS]["259:0"] = admins
	var s iocost.State
	var out iocost.Output
	step := func(want string) {
		t.Helper()
		if s, out = iocost.Step(s, in); render(out) != want || len(out.Problems) > 0 {
			t.Errorf("%q, problems %q; want %q", render(out), out.Problems, want)
		}
		written(&in, out)
	}
	const (
		ours  = "io.cost.qos 8:0 enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=95.00 wlat=3000"
		nvme  = "io.cost.qos 259:0 enable=1 ctrl=user rpct=50.00 rlat=3000 wpct=95.00 wlat=3000"
		model = "io.cost.model 8:0 ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6"
	)
	step(ours + "; " + model + "; " + nvme)
	step("")
	const stands = "io.cost.qos of 8:0: latencies of cgroupRoot.blkioQOS; io.cost.model of 8:0: model of cgroupRoot.blkioQOS; " +
		"io.cost.qos of 259:0: latencies of cgroupRoot.blkioQOS"
	if out.Reason != stands {
		t.Errorf("what stands is told as %q, want %q", out.Reason, stands)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back iocost.State
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, back); d != "" || len(s.Held) != 3 || s.Held[2].Original != admins {
		t.Errorf("%+v\n%s", s, d)
	}
	in.Lines[plan.IOCostQoS]["8:0"] = "enable=0 ctrl=auto rpct=0.00 rlat=25000"
	step(ours)
	step("")
	// Without its latency the disk stays on, with the targets from before.
	in.Blocks[0].IOCfg = strategy.IOCfg{}
	step("io.cost.qos 8:0 enable=1 ctrl=auto; io.cost.model 8:0 ctrl=auto")
	step("")
	// A file that cannot be read is nobody's end.
	lines := in.Lines
	in.Blocks, in.Lines = nil, nil
	step("")
	in.Lines = lines
	step("io.cost.qos 8:0 enable=0 ctrl=auto; io.cost.qos 259:0 " + admins)
	if got := in.Lines[plan.IOCostQoS]["259:0"]; got != admins {
		t.Errorf("%q came back, want %q", got, admins)
	}
	step("")
	if len(s.Held) != 0 {
		t.Errorf("left behind: %+v", s)
	}
	// Somebody else's stays, and so does nothing of a disk that is gone.
	in.Blocks = disk(c)
	step(ours + "; " + model)
	in.Blocks = nil
	in.Lines[plan.IOCostQoS]["8:0"] = admins
	delete(in.Lines[plan.IOCostModel], "8:0")
	step("")
	if len(s.Held) != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// TestGivesWay: who sets a line again and again gets it, and is named; another value of the strategy begins anew.
func TestGivesWay(t *testing.T) {
	t.Parallel()
	const theirs = "enable=0 ctrl=auto rpct=0.00"
	in := node8(disk(strategy.IOCfg{ReadLatency: num(5000)}))
	var s iocost.State
	var out iocost.Output
	writes := 0
	for range 20 {
		s, out = iocost.Step(s, in)
		writes += len(out.Plan)
		written(&in, out)
		s, _ = iocost.Step(s, in)
		in.Lines[plan.IOCostQoS]["8:0"] = theirs
	}
	if writes != 11 || len(out.Problems) != 1 || !strings.Contains(out.Problems[0], `somebody else sets io.cost.qos to "`+theirs+`"`) {
		t.Errorf("%d writes, problems %q", writes, out.Problems)
	}
	in.Blocks = disk(strategy.IOCfg{ReadLatency: num(6000)})
	if _, out = iocost.Step(s, in); len(out.Plan) != 1 || len(out.Problems) != 0 {
		t.Errorf("another value: %q, problems %q", render(out), out.Problems)
	}
	// A write that fails is no fight.
	s = iocost.State{}
	for range 30 {
		if s, out = iocost.Step(s, in); len(out.Plan) != 1 {
			t.Fatalf("given up: %q %q", render(out), out.Problems)
		}
	}
}

// Words that the next ones were to replace, which were never written, are ours as well: they do not stand for good.
func TestFormerValueIsGivenBack(t *testing.T) {
	t.Parallel()
	const (
		admins = "enable=0 ctrl=user rpct=90.00 rlat=7000 wpct=0.00 wlat=9000 min=50.00 max=150.00"
		next   = "io.cost.qos 8:0 enable=1 ctrl=user rpct=95.00 rlat=6000 wpct=95.00 wlat=3000"
	)
	in := node8(disk(strategy.IOCfg{ReadLatency: num(5000)}))
	in.Lines[plan.IOCostQoS]["8:0"] = admins
	s, out := iocost.Step(iocost.State{}, in)
	written(&in, out)
	s, _ = iocost.Step(s, in)
	in.Blocks = disk(strategy.IOCfg{ReadLatency: num(6000)})
	for range 2 { // both writes are refused, or a life ends before them
		if s, out = iocost.Step(s, in); render(out) != next {
			t.Fatalf("%q", render(out))
		}
	}
	in.Blocks = nil
	if s, out = iocost.Step(s, in); render(out) != "io.cost.qos 8:0 "+admins {
		t.Errorf("no longer named: %q, %+v", render(out), s)
	}
	written(&in, out)
	if s, out = iocost.Step(s, in); len(out.Plan) > 0 || len(s.Held) > 0 {
		t.Errorf("left behind: %q, %+v", render(out), s)
	}
}
