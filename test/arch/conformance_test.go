// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package arch

import (
	"cmp"
	"maps"
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
	"io.weight":                 "iocost is the node's to switch on: the lifecycle BlockIO does so and reads it",
	"io.latency":                "every kernel of test/lab/versions.env has CONFIG_BLK_CGROUP_IOLATENCY unset; the lifecycle BlockIO reads it on 6.12-own of lab-vm-full",
	"rdt.mon_group":             "the emulated CPU does not count",
	"core_sched.cookie":         noCookies,
	"env":                       "only a creation can set it",
	"device":                    "only a creation can set it",
	"cdi":                       "only a creation can set it",
	"mount":                     "only a creation can set it",
	"vm.min_free_kbytes":        "it is the node's",
	"vm.watermark_scale_factor": "it is the node's",
	"io.cost.qos":               "it is the node's",
	"io.cost.model":             "it is the node's",
	"net.shape":                 "it is the node's",
	"devices":                   "only a creation can set it",
}

// TestConformanceCoversEveryKnob: on both cgroup versions a conformance test, on make test's host or in a guest of lab-vm-full, reads back every
// knob and every feature, so that a value which the plugin's reply carries and a repair forgets is seen.
func TestConformanceCoversEveryKnob(t *testing.T) {
	t.Parallel()
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	covers(t, all, "Conformance", unrepaired, plan.KnobSet(plan.Env, plan.Device)) // which the conformance tests leave out
}

// unproxied is unrepaired of the scenarios that go through the proxy.
var unproxied = func() map[string]string {
	out := maps.Clone(unrepaired)
	for _, creation := range []string{"device", "env", "devices"} { // a creation goes through the proxy, too
		delete(out, creation)
	}
	out["cdi"] = "the proxy's life CDI reads it, beside a registry of devices"
	out["mount"] = "the proxy's life HAMi reads it, beside HAMi-core's library"
	return out
}()

// TestProxyScenariosCoverEveryKnob: on both cgroup versions a scenario through the proxy, on make test's host or in a guest of lab-vm-full, reads back
// every knob and every feature, in the request or right after the start.
func TestProxyScenariosCoverEveryKnob(t *testing.T) {
	t.Parallel()
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	covers(t, all, "ProxyScenarios", unproxied, 0)
}

// covers looks for each knob and feature on each cgroup version for a scenario that this test reads back on the host, as make test does, or in a
// guest of lab-vm-full; absent says by name, or by version and name, why there is none, without are knobs that this test does not read.
func covers(t *testing.T, all []scenario.Scenario, test string, absent map[string]string, without plan.Knobs) {
	t.Helper()
	for _, version := range []string{"v1", "v2"} {
		shown := repairedBy(all, kernelLanes(t, "TestFullVM(", test), version, without)
		for name, nowhere := range wantedRepairs(version) {
			said := cmp.Or(absent[version+" "+name], absent[name])
			why := cmp.Or(said, nowhere)
			switch {
			case len(shown[name]) == 0 && why == "":
				t.Errorf("no %s read back %s on cgroup %s", test, name, version)
			case len(shown[name]) > 0 && said != "":
				t.Errorf("%s on cgroup %s is read back by %v, yet is said not to be: %s", name, version, shown[name], why)
			default:
				t.Logf("%s %-30s %s%s", version, name, strings.Join(shown[name], " "), why)
			}
		}
	}
	for name := range absent {
		if _, known := wantedRepairs("v2")[strings.TrimPrefix(name, "v2 ")]; !known {
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
func repairedBy(all []scenario.Scenario, lanes []kernelLane, version string, without plan.Knobs) map[string][]string {
	out := map[string][]string{}
	for i := range all {
		s := &all[i]
		for _, l := range lanes {
			if _, fits := s.Fits(l.version, l.topology, l.has...); l.version != version || !fits || !l.only.MatchString(s.Name) {
				continue
			}
			eachRead(s, version, func(names ...string) {
				if k, _ := plan.ParseKnob(names[0]); without.Has(k) {
					return
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
