// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// unrepaired says why no scenario of the conformance tests can show a knob, or a feature, as what repairs a pod that came without us.
// Vendor kernels' knobs say so in kernel/cgroup's table.
var unrepaired = map[string]string{
	"cpu.period":                "nobody sets it",
	"io.read_bps":               "the disk's name differs between machines, and io.read_iops goes the same way",
	"io.write_bps":              "as io.read_bps",
	"io.read_iops":              "the disk's name differs between machines: the lifecycle Restore reads it on a pod that was there before us",
	"io.write_iops":             "as io.read_bps",
	"io.weight":                 "as io.read_bps, and iocost is the node's to switch on: the lifecycle BlockIO does so and reads it",
	"io.latency":                "every kernel of test/lab/versions.env has CONFIG_BLK_CGROUP_IOLATENCY unset",
	"rdt.mon_group":             "the emulated CPU does not count",
	"core_sched.cookie":         noCookies,
	"env":                       "only a creation can set it",
	"device":                    "only a creation can set it",
	"cdi":                       "only a creation can set it",
	"mount":                     "only a creation can set it",
	"vm.min_free_kbytes":        "it is the node's",
	"vm.watermark_scale_factor": "it is the node's",
	"net.shape":                 "it is the node's",
	"devices":                   "only a creation can set it",
}

// TestConformanceCoversEveryKnob: on both cgroup versions a conformance test that make test runs reads back every knob and every
// feature, so that a value which the plugin's reply carries and a repair forgets is seen.
func TestConformanceCoversEveryKnob(t *testing.T) {
	t.Parallel()
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2"} {
		repaired := repairedBy(all, kernelLanes(t, "Conformance"), version)
		for name, absent := range wantedRepairs(version) {
			why := cmp.Or(unrepaired[name], absent)
			switch {
			case len(repaired[name]) == 0 && why == "":
				t.Errorf("no conformance test of make test reads back %s on cgroup %s", name, version)
			case len(repaired[name]) > 0 && unrepaired[name] != "":
				t.Errorf("%s on cgroup %s is read back by %v, yet is said not to be: %s", name, version, repaired[name], why)
			default:
				t.Logf("%s %-30s %s%s", version, name, strings.Join(repaired[name], " "), why)
			}
		}
	}
	for name := range unrepaired {
		if _, known := wantedRepairs("v2")[name]; !known {
			t.Errorf("%s is neither a knob nor a feature", name)
		}
	}
}

// wantedRepairs are the names of all knobs and features, each with the reason why no kernel of the lab has it, if none has.
func wantedRepairs(version string) map[string]string {
	out := map[string]string{}
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		out[k.String()] = ""
	}
	for _, row := range cgroup.Table() {
		file, since := row.V2, row.SinceV2
		if version == "v1" {
			file, since = row.V1, row.SinceV1
		}
		if row.Elsewhere == "" && (file == "" || strings.HasPrefix(since, "Anolis")) {
			out[row.Knob.String()] = "no mainline kernel has it"
		}
	}
	for _, f := range protocol.Features() {
		out[f.String()] = elsewhere[cell{f, version}]
	}
	return out
}

// repairedBy lists for each knob and feature the scenarios with the lanes, "SCENARIO@LANE", that read it back.
func repairedBy(all []scenario.Scenario, lanes []kernelLane, version string) map[string][]string {
	out := map[string][]string{}
	for i := range all {
		s := &all[i]
		for _, l := range lanes {
			if _, fits := s.Fits(l.version, l.topology, l.has...); l.version != version || !fits || !l.only.MatchString(s.Name) {
				continue
			}
			eachRead(s, version, func(names ...string) {
				if k, _ := plan.ParseKnob(names[0]); k == plan.Env || k == plan.Device {
					return // which the conformance tests leave out
				}
				for _, name := range names {
					if by := s.Name + "@" + l.name; !slices.Contains(out[name], by) {
						out[name] = append(out[name], by)
					}
				}
			})
		}
	}
	return out
}
