// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

func TestStale(t *testing.T) {
	t.Parallel()
	const now, limit = 100 * unit.Minute, 15 * unit.Minute
	at := func(m unit.Micros) *capacity.Report { return &capacity.Report{At: now + m} }
	came := func(ago unit.Micros) capacity.Sighting {
		return capacity.Sighting{For: unit.Some(int64(ago)), Came: true}
	}
	found := func(ago unit.Micros) capacity.Sighting { return capacity.Sighting{For: unit.Some(int64(ago))} }
	var none capacity.Sighting
	for name, tc := range map[string]struct {
		report *capacity.Report
		seen   capacity.Sighting
		want   string
	}{
		"none":           {nil, none, "the node has not reported"},
		"none, for long": {nil, came(limit + 1), "the node has not reported"},
		"at the limit":   {at(-limit), none, ""},
		"past it":        {at(-limit - unit.Second), none, "the last report is 15.02 min old, more than 15 min"},
		"of the future":  {at(limit), none, ""},
		"far ahead":      {at(limit + unit.Second), none, "the last report is 15.02 min ahead of the time here, more than 15 min: set the node's clock"},
		"came in time, from a clock that is behind": {at(-2 * limit), came(20 * unit.Second),
			"the last report came 20 s ago and says that it is 30 min old, more than 15 min: set the node's clock"},
		"as old as it says":            {at(-2 * limit), came(2 * limit), "the last report is 30 min old, more than 15 min"},
		"old, and of a time before us": {at(-2 * limit), found(20 * unit.Second), "the last report is 30 min old, more than 15 min"},
		"of the future, and new":       {at(limit), came(limit), ""},
		"it was of the future":         {at(0), came(limit + unit.Second), "the node has not reported for 15.02 min, more than 15 min"},
		"it still is":                  {at(limit), found(limit + unit.Second), "the node has not reported for 15.02 min, more than 15 min"},
	} {
		if got := capacity.Stale(tc.report, tc.seen, now, limit); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestHighOf(t *testing.T) {
	t.Parallel()
	report := plainReport()
	report.Pods = append(report.Pods, capacity.Usage{Name: "test/gone", Class: protocol.PriorityProd, Used: of(2, 0)})
	want := capacity.High{Requested: of(40, 60), Used: of(35, 33), Larger: of(44, 60)}
	if diff := cmp.Diff(want, capacity.HighOf(plainPods(), &report, protocol.PriorityBatch)); diff != "" {
		t.Error(diff)
	}
}

func TestAmountsSaturate(t *testing.T) {
	t.Parallel()
	most := capacity.Amounts{CPU: math.MaxInt64, Memory: math.MaxInt64}
	if got := most.Plus(of(1, 1)); got != most {
		t.Errorf("%+v", got)
	}
	if got := of(1, 1).Minus(most); got != (capacity.Amounts{}) {
		t.Errorf("%+v", got)
	}
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	known := capacity.Normalization{Enabled: true, Ratio: 1.2, OK: true}
	with := func(change func(*capacity.Normalization)) capacity.Normalization {
		out := known
		change(&out)
		return out
	}
	for name, tc := range map[string]struct {
		in      capacity.Normalization
		want    unit.Ratio
		problem string
	}{
		"on":                   {known, 120, ""},
		"off":                  {with(func(n *capacity.Normalization) { n.Enabled = false }), 100, ""},
		"the label says off":   {with(func(n *capacity.Normalization) { n.Label = capacity.Off }), 100, ""},
		"the label says on":    {with(func(n *capacity.Normalization) { n.Enabled, n.Label = false, capacity.On }), 120, ""},
		"model not known":      {capacity.Normalization{Enabled: true, Problem: "no model"}, 0, "no model"},
		"slower than slowest":  {with(func(n *capacity.Normalization) { n.Ratio = 0.99 }), 0, "the ratio of the CPU model must be from 1 to 5"},
		"beyond what is known": {with(func(n *capacity.Normalization) { n.Ratio = 5.01 }), 0, "the ratio of the CPU model must be from 1 to 5"},
		"no number":            {with(func(n *capacity.Normalization) { n.Ratio = math.NaN() }), 0, "the ratio of the CPU model must be from 1 to 5"},
		"rounded":              {with(func(n *capacity.Normalization) { n.Ratio = 1.005 + 1e-9 }), 101, ""},
	} {
		got, problem := capacity.Normalize(tc.in)
		if got != tc.want || problem != tc.problem {
			t.Errorf("%s: %d %q, want %d %q", name, got, problem, tc.want, tc.problem)
		}
	}
}

func TestNormalized(t *testing.T) {
	t.Parallel()
	for ratio, want := range map[unit.Ratio]unit.MilliCPU{0: 25000, 90: 25000, 100: 25000, 120: 30000, 133: 33250} {
		if got := capacity.Normalized(25000, ratio); got != want {
			t.Errorf("× %d: %d, want %d", ratio, got, want)
		}
	}
}

func TestAmplify(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ratios        map[string]float64
		normalization unit.Ratio
		want          map[string]unit.Ratio
		problem       string
	}{
		"nothing":            {nil, 100, map[string]unit.Ratio{}, ""},
		"both":               {map[string]float64{"cpu": 1.5, "memory": 1}, 120, map[string]unit.Ratio{"cpu": 180}, ""},
		"normalisation only": {nil, 120, map[string]unit.Ratio{"cpu": 120}, ""},
		"strategy only":      {map[string]float64{"cpu": 1.25, "memory": 1.1}, 0, map[string]unit.Ratio{"cpu": 125, "memory": 110}, ""},
		"below one":          {map[string]float64{"memory": 0.5}, 120, nil, "the amplification ratio of memory must be from 1 to 100"},
		"beyond sense":       {map[string]float64{"cpu": 1e9}, 100, nil, "the amplification ratio of cpu must be from 1 to 100"},
	} {
		got, problem := capacity.Amplify(tc.ratios, tc.normalization)
		if diff := cmp.Diff(tc.want, got); diff != "" || problem != tc.problem {
			t.Errorf("%s: %q %s", name, problem, diff)
		}
	}
}

func TestRule(t *testing.T) {
	t.Parallel()
	rule := capacity.Rule{Threshold: 0.1, After: 300 * unit.Second}
	one := func(old, now unit.Opt) []capacity.Change { return []capacity.Change{{Old: old, New: now}} }
	for name, tc := range map[string]struct {
		changes []capacity.Change
		since   unit.Micros
		want    bool
	}{
		"nothing":                       {nil, unit.Minute * 60, false},
		"more than the threshold":       {one(unit.Some(10000), unit.Some(11001)), 0, true},
		"less, by more":                 {one(unit.Some(10000), unit.Some(8999)), 0, true},
		"the threshold":                 {one(unit.Some(10000), unit.Some(11000)), 0, false},
		"less than that, soon":          {one(unit.Some(10000), unit.Some(10500)), 299 * unit.Second, false},
		"less than that, later":         {one(unit.Some(10000), unit.Some(10500)), 300 * unit.Second, true},
		"noise, however late":           {one(unit.Some(10000), unit.Some(10050)), 24 * 60 * unit.Minute, false},
		"comes":                         {one(unit.Opt{}, unit.Some(0)), 0, true},
		"goes":                          {one(unit.Some(0), unit.Opt{}), 0, true},
		"is not there and stays so":     {one(unit.Opt{}, unit.Opt{}), unit.Minute * 60, false},
		"from nothing":                  {one(unit.Some(0), unit.Some(1)), 0, true},
		"one of two":                    {append(one(unit.Some(5), unit.Some(5)), one(unit.Some(1000), unit.Some(500))...), 0, true},
		"the largest to the smallest":   {one(unit.Some(math.MaxInt64), unit.Some(0)), 0, true},
		"the other way round, negative": {one(unit.Some(1), unit.Some(math.MinInt64)), 0, true},
	} {
		if got := rule.Due(tc.changes, tc.since); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestLinesOf(t *testing.T) {
	t.Parallel()
	n := plainNode()
	pods := []capacity.Pod{
		{Name: "a/a", Class: protocol.PriorityProd, Request: of(60, 60)}, {Name: "a/m", Class: protocol.PriorityMid, Request: of(9, 9)},
	}
	report := capacity.Report{
		Pods: []capacity.Usage{{Name: "a/a", Class: protocol.PriorityProd, Used: of(20, 30)}}, ProdPeak: of(35, 40), PeakOK: true,
	}
	want := capacity.Lines{Limit: of(60, 60), Usage: of(20, 30), UsageOK: true, ShortTerm: of(62, 70), LongTerm: of(35, 40)}
	if diff := cmp.Diff(want, capacity.LinesOf(&n, pods, &report, of(38, 50))); diff != "" {
		t.Error(diff)
	}
	report.PeakOK = false
	if got := capacity.LinesOf(&n, pods, &report, of(38, 50)); got.LongTerm != want.Limit {
		t.Errorf("without a prediction: %+v", got)
	}
	want = capacity.Lines{Limit: of(60, 60), ShortTerm: n.Capacity, LongTerm: of(60, 60)}
	if diff := cmp.Diff(want, capacity.LinesOf(&n, pods, nil, capacity.Amounts{})); diff != "" {
		t.Errorf("without a report: %s", diff)
	}
}

func TestDeviceResources(t *testing.T) {
	t.Parallel()
	gpu := func(healthy bool) capacity.Device {
		return capacity.Device{Type: protocol.DeviceGPU, Healthy: healthy, Resources: map[string]int64{
			protocol.ResourceGPUCore: 100, protocol.ResourceGPUMemory: 16 << 30,
		}}
	}
	rdma, fpga := capacity.Device{Type: protocol.DeviceRDMA, Healthy: true}, capacity.Device{Type: protocol.DeviceFPGA, Healthy: true}
	named := func(id string, healthy bool) capacity.Device {
		out := gpu(healthy)
		out.ID = id
		return out
	}
	card := capacity.Device{Type: protocol.DeviceRDMA, Healthy: true, ID: "c"}
	two := map[string]int64{protocol.ResourceGPU: 200, protocol.ResourceGPUCore: 200, protocol.ResourceGPUMemory: 32 << 30}
	for name, tc := range map[string]struct {
		devices []capacity.Device
		vendor  string
		shared  bool
		want    map[string]int64
	}{
		"none":           {nil, "", true, map[string]int64{}},
		"two and a half": {[]capacity.Device{gpu(true), gpu(true), gpu(false)}, "", false, two},
		"nvidia's":       {[]capacity.Device{gpu(true), gpu(true)}, "nvidia", false, two},
		"another's": {[]capacity.Device{gpu(true)}, "huawei", false, map[string]int64{
			protocol.ResourceGPUCore: 100, protocol.ResourceGPUMemory: 16 << 30,
		}},
		"shared, and a network": {[]capacity.Device{gpu(true), rdma, rdma}, "huawei", true, map[string]int64{
			protocol.ResourceGPUCore: 100, protocol.ResourceGPUMemory: 16 << 30, protocol.ResourceGPUShared: 100, protocol.ResourceRDMA: 200,
		}},
		"no GPU":                    {[]capacity.Device{fpga, fpga, rdma}, "", true, map[string]int64{protocol.ResourceFPGA: 200, protocol.ResourceRDMA: 100}},
		"one of them twice":         {[]capacity.Device{named("a", true), named("b", true), named("a", true)}, "", false, two},
		"a network card twice":      {[]capacity.Device{card, card}, "", false, map[string]int64{protocol.ResourceRDMA: 100}},
		"twice, the first is ill":   {[]capacity.Device{named("a", false), named("a", true)}, "", false, map[string]int64{}},
		"two of which nobody knows": {[]capacity.Device{named("", true), named("", true)}, "", false, two},
		"not healthy":               {[]capacity.Device{gpu(false), {Type: protocol.DeviceFPGA}}, "", true, map[string]int64{}},
	} {
		if diff := cmp.Diff(tc.want, capacity.DeviceResources(tc.devices, tc.vendor, tc.shared)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestGPUModel(t *testing.T) {
	t.Parallel()
	gpu := func(model string) capacity.Device {
		return capacity.Device{Type: protocol.DeviceGPU, Healthy: true, Model: model}
	}
	sick := capacity.Device{Type: protocol.DeviceGPU, Model: "a100"}
	for name, tc := range map[string]struct {
		devices []capacity.Device
		model   string
		told    bool
	}{
		"none":                        {},
		"another device's is not it":  {devices: []capacity.Device{{Type: protocol.DeviceRDMA, Healthy: true, Model: "mellanox-ib"}}},
		"not told":                    {devices: []capacity.Device{gpu(""), gpu("")}},
		"agreed":                      {[]capacity.Device{gpu("a100"), {Type: protocol.DeviceFPGA, Model: "u250"}, gpu("a100")}, "a100", true},
		"differ":                      {[]capacity.Device{gpu("a100"), gpu("h100")}, "", true},
		"one does not tell":           {[]capacity.Device{gpu("a100"), gpu("")}, "", true},
		"one that fails is still one": {[]capacity.Device{sick, gpu("h100")}, "", true},
	} {
		if model, told := capacity.GPUModel(tc.devices); model != tc.model || told != tc.told {
			t.Errorf("%s: %q, %t", name, model, told)
		}
	}
}
