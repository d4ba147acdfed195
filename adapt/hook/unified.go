// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// maxSettings bounds what files of lines make of one answer: each setting is looked for among those before it.
const maxSettings = 512

// unified takes cgroup v2 files. A file that a knob stands for becomes that knob, so that it cannot be set a second time
// beside it; files without a knob are passed on.
func (d *differ) unified(asked, answered map[string]string) {
	for _, file := range slices.Sorted(maps.Keys(answered)) {
		value := answered[file]
		if have, ok := asked[file]; ok && have == value {
			continue
		}
		if why := d.file(file, value); why != "" {
			d.problem("unified", strconv.Quote(file)+": "+why)
		}
	}
}

// file takes one cgroup v2 file and says why it cannot.
func (d *differ) file(file, value string) string {
	switch {
	case file == "" || strings.ContainsAny(file, "/\x00") || strings.ContainsRune(value, 0):
		return "not a cgroup file's name, or a NUL"
	case file == "cpu.weight" || file == "cpu.weight.nice":
		// Shares and weight are one kernel value, and only the runtime knows its formula between them.
		return "give cpu_shares instead"
	case file == "cpu.max":
		return d.cpuMax(value)
	case file == "cpuset.cpus" || file == "cpuset.mems":
		knob := plan.CPUSetCPUs
		if file == "cpuset.mems" {
			knob = plan.CPUSetMems
		}
		return d.listFile(knob, strings.TrimSpace(value))
	case file == "memory.max":
		return d.number(plan.MemoryLimit, "", value)
	}
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		if k.UnifiedKey() != file {
			continue
		}
		if k.Info().Keyed {
			return d.lines(file, value)
		}
		return d.number(k, "", value)
	}
	if d.out.Unified == nil {
		d.out.Unified = make(map[string]string)
	}
	d.out.Unified[file] = value
	return ""
}

func (d *differ) number(k plan.Knob, key, value string) string {
	value = strings.TrimSpace(value)
	n := int64(unit.Unlimited)
	if value != "max" || !k.Unlimitable() {
		var err error
		if n, err = strconv.ParseInt(value, 10, 64); err != nil {
			return "want " + k.Info().Unit + ", have " + strconv.Quote(value)
		}
		if !inRange(k, n) || n == unit.Unlimited && k.Unlimitable() {
			return outOfRange(k, n)
		}
	}
	if d.out.Plan.Find(d.target, k, key) != nil {
		return k.String() + " is given twice"
	}
	d.set(k, key, plan.Int(n))
	return ""
}

func (d *differ) listFile(k plan.Knob, value string) string {
	if err := protocol.CheckCPUList(value); err != nil {
		return err.Error()
	}
	if d.out.Plan.Find(d.target, k, "") != nil {
		return k.String() + " is given twice"
	}
	d.set(k, "", plan.Text(value))
	return ""
}

// cpuMax reads "max 100000", "50000 100000" or the quota alone.
func (d *differ) cpuMax(value string) string {
	words := strings.Fields(value)
	if len(words) < 1 || len(words) > 2 {
		return "want quota and period in µs, have " + strconv.Quote(value)
	}
	if why := d.number(plan.CPUQuota, "", words[0]); why != "" || len(words) == 1 {
		return why
	}
	return d.number(plan.CPUPeriod, "", words[1])
}

// lines reads io.max ("8:0 rbps=1 wiops=max"), io.weight ("default 100", "100", "8:0 50") and io.latency
// ("8:0 target=75"): a line per device.
func (d *differ) lines(file, value string) string {
	for line := range strings.Lines(value) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(d.out.Plan) >= maxSettings {
			return "more than " + strconv.Itoa(maxSettings) + " settings in one answer"
		}
		if why := d.line(file, words); why != "" {
			return why
		}
	}
	return ""
}

func (d *differ) line(file string, words []string) string {
	if file == plan.IOWeight.UnifiedKey() {
		switch {
		case len(words) == 1:
			return d.number(plan.IOWeight, "", words[0])
		case len(words) == 2 && words[0] == "default":
			return d.number(plan.IOWeight, "", words[1])
		case len(words) == 2 && plan.IsDevice(words[0]):
			return d.number(plan.IOWeight, words[0], words[1])
		}
		return "want default or a device and a weight"
	}
	if len(words) < 2 || !plan.IsDevice(words[0]) {
		return "want a device such as 8:0 and what holds for it"
	}
	for _, word := range words[1:] {
		name, number, _ := strings.Cut(word, "=")
		knob, ok := ioKnob(file, name)
		if !ok {
			return "unknown word " + strconv.Quote(word)
		}
		if why := d.number(knob, words[0], number); why != "" {
			return why
		}
	}
	return ""
}

func ioKnob(file, name string) (plan.Knob, bool) {
	if file == plan.IOLatency.UnifiedKey() {
		return plan.IOLatency, name == "target"
	}
	for _, k := range [...]plan.Knob{plan.IOReadBPS, plan.IOWriteBPS, plan.IOReadIOPS, plan.IOWriteIOPS} {
		if name == k.IOMaxField() {
			return k, true
		}
	}
	return plan.KnobNone, false
}
