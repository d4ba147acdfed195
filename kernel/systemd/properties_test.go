// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package systemd

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

func set(k plan.Knob, v plan.Value) plan.Setting {
	return plan.Setting{Target: plan.Target{Level: plan.LevelPod, Name: "default/web"}, Knob: k, Value: v}
}

// goldens are a property's name, value and D-Bus type per list of settings.
func TestPropertiesGolden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings []plan.Setting
		weight   unit.WeightFormula
		want     string
	}{
		"weight by either formula": {[]plan.Setting{set(plan.CPUShares, plan.Int(1024))}, unit.Linear, "CPUWeight=39 uint64"},
		"weight of the runtime":    {[]plan.Setting{set(plan.CPUShares, plan.Int(1024))}, unit.Quadratic, "CPUWeight=100 uint64"},
		"quota at the usual period": {[]plan.Setting{set(plan.CPUQuota, plan.Int(150000))}, unit.Linear,
			"CPUQuotaPerSecUSec=1500000 uint64"},
		"quota and period in any order": {[]plan.Setting{set(plan.CPUQuota, plan.Int(10000)), set(plan.CPUPeriod, plan.Int(20000))}, unit.Linear,
			"CPUQuotaPerSecUSec=500000 uint64; CPUQuotaPeriodUSec=20000 uint64"},
		"quota is rounded up":       {[]plan.Setting{set(plan.CPUQuota, plan.Int(33333))}, unit.Linear, "CPUQuotaPerSecUSec=340000 uint64"},
		"idle, whatever the weight": {[]plan.Setting{set(plan.CPUShares, plan.Int(1024)), set(plan.CPUIdle, plan.Int(1))}, unit.Linear, "CPUWeight=0 uint64"},
		"no longer idle":            {[]plan.Setting{set(plan.CPUIdle, plan.Int(0)), set(plan.CPUShares, plan.Int(1024))}, unit.Linear, "CPUWeight=39 uint64"},
		"no longer idle, at the kernel's weight": {[]plan.Setting{set(plan.CPUIdle, plan.Int(0))}, unit.Linear,
			fmt.Sprintf("CPUWeight=%d uint64", uint64(math.MaxUint64))},
		"no quota": {[]plan.Setting{set(plan.CPUQuota, plan.Int(-1))}, unit.Linear, fmt.Sprintf("CPUQuotaPerSecUSec=%d uint64", uint64(math.MaxUint64))},
		"sets": {[]plan.Setting{set(plan.CPUSetCPUs, plan.Text("0-1,9")), set(plan.CPUSetMems, plan.Text("1"))}, unit.Linear,
			"AllowedCPUs=[3 2] []uint8; AllowedMemoryNodes=[2] []uint8"},
		"empty set": {[]plan.Setting{set(plan.CPUSetCPUs, plan.Text(""))}, unit.Linear, "AllowedCPUs=[] []uint8"},
		"memory": {[]plan.Setting{set(plan.MemoryMin, plan.Int(4096)), set(plan.MemoryLow, plan.Int(8192)), set(plan.MemoryHigh, plan.Int(-1)), set(plan.MemoryLimit, plan.Int(1<<30))}, unit.Linear,
			fmt.Sprintf("MemoryHigh=%d uint64; MemoryLow=8192 uint64; MemoryMax=1073741824 uint64; MemoryMin=4096 uint64", uint64(math.MaxUint64))},
		"what systemd does not know": {[]plan.Setting{set(plan.CPUBurst, plan.Int(1)), set(plan.IOWeight, plan.Int(5)), set(plan.MemoryOOMGroup, plan.Int(1)), set(plan.Env, plan.Text("x"))}, unit.Linear, ""},
		"observed only":              {[]plan.Setting{{Knob: plan.MemoryMin, Value: plan.Int(1), Observe: true}}, unit.Linear, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			props, err := Properties(c.settings, c.weight, false)
			if err != nil {
				t.Fatal(err)
			}
			lines := make([]string, len(props))
			for i, p := range props {
				lines[i] = fmt.Sprintf("%s=%v %T", p.Name, p.Value, p.Value)
			}
			if got := strings.Join(lines, "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// On cgroup v1 shares and limit are the properties that runc sets there, and what would bring others into force is none.
func TestPropertiesV1(t *testing.T) {
	t.Parallel()
	settings := []plan.Setting{
		set(plan.CPUShares, plan.Int(2048)), set(plan.CPUIdle, plan.Int(1)), set(plan.CPUQuota, plan.Int(150000)), set(plan.CPUSetCPUs, plan.Text("1")),
		set(plan.MemoryMin, plan.Int(4096)), set(plan.MemoryLow, plan.Int(4096)), set(plan.MemoryHigh, plan.Int(1<<20)), set(plan.MemoryLimit, plan.Int(1<<30)),
	}
	want := []Property{{"CPUQuotaPerSecUSec", uint64(1500000)}, {"CPUShares", uint64(2048)}, {"MemoryLimit", uint64(1 << 30)}}
	if props, err := Properties(settings, unit.Linear, true); err != nil || !reflect.DeepEqual(props, want) {
		t.Errorf("%v, %v", props, err)
	}
	if props, err := Properties([]plan.Setting{set(plan.CPUShares, plan.Int(0))}, unit.Linear, true); err == nil || len(props) > 0 {
		t.Errorf("no shares: %v", props)
	}
}

func TestPropertiesErrorsLeaveTheRest(t *testing.T) {
	t.Parallel()
	props, err := Properties([]plan.Setting{set(plan.CPUSetCPUs, plan.Text("3-1")), set(plan.CPUQuota, plan.Int(0)), set(plan.CPUShares, plan.Int(0)), set(plan.MemoryMin, plan.Int(1))}, unit.Linear, false)
	if want := []Property{{"MemoryMin", uint64(1)}}; !reflect.DeepEqual(props, want) {
		t.Errorf("got %v", props)
	}
	for _, knob := range []string{"cpuset.cpus", "cpu.quota", "cpu.shares"} {
		if err == nil || !strings.Contains(err.Error(), knob) {
			t.Errorf("%s is not named: %v", knob, err)
		}
	}
}

// Every mapped knob yields a property, no other does.
func TestMapped(t *testing.T) {
	t.Parallel()
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		v := plan.Int(2000)
		if k.Info().Text {
			v = plan.Text("1")
		}
		for _, v1 := range []bool{false, true} {
			props, err := Properties([]plan.Setting{set(k, v)}, unit.Linear, v1)
			if err != nil || (len(props) == 1) != Mapped(k, v1) {
				t.Errorf("%s, v1 %v: mapped %v, properties %v, %v", k, v1, Mapped(k, v1), props, err)
			}
		}
	}
}

func TestUnit(t *testing.T) {
	t.Parallel()
	for cgroup, want := range map[string]string{
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice": "kubepods-besteffort-pod1_2.slice",
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-ab.scope":                "cri-containerd-ab.scope",
		"system.slice/containerd.service/":                                           "containerd.service",
	} {
		if got, err := Unit(cgroup); err != nil || got != want {
			t.Errorf("Unit(%q) = %q, %v", cgroup, got, err)
		}
	}
	for _, cgroup := range []string{"", "/", "/kubepods/pod1/ab", "/x.scope/init"} {
		if got, err := Unit(cgroup); !errors.Is(err, ErrNoUnit) {
			t.Errorf("Unit(%q) = %q, %v", cgroup, got, err)
		}
	}
}

func FuzzSetBits(f *testing.F) {
	f.Add("0-3,8")
	f.Add("8191")
	f.Add("0-4294967295")
	f.Fuzz(func(t *testing.T, list string) {
		bits, err := setBits(list)
		if err != nil {
			return
		}
		set, err := topo.ParseCPUSet(list)
		if err != nil {
			t.Fatal(err)
		}
		var back []int
		for i := range len(bits) * 8 {
			if bits[i/8]&(1<<(i%8)) != 0 {
				back = append(back, i)
			}
		}
		if !slices.Equal(back, set.List()) && len(back)+set.Len() > 0 {
			t.Errorf("%q: %v, want %v", list, back, set.List())
		}
	})
}
