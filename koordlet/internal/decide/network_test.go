// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/netqos"
)

// share enables the class BE with a tenth of the bandwidth, and at most half.
func share(f *decide.Facts) {
	f.View.Strategy.ResourceQOSStrategy.BEClass.NetworkQOS = &strategy.NetworkQOS{
		Enable: new(true), EgressRequest: &strategy.IntOrString{Int: 10}, EgressLimit: &strategy.IntOrString{Int: 50},
	}
}

func uplink() *netqos.Link {
	return &netqos.Link{Name: "eth0", Speed: 1e10, Now: map[string]string{"eth0/egress": "default", "eth0/ingress": "none"}, Why: map[string]string{}}
}

// A link is shaped when a class asks for it and gets its queue back afterwards; by default nobody looks.
func TestNetwork(t *testing.T) {
	t.Parallel()
	const shaped = "htb total=10000000000 system=9000000000/10000000000/0 be=1000000000/5000000000/3"
	for name, end := range map[string]func(*decide.Facts){
		"disabled":    func(f *decide.Facts) { f.View.Strategy.ResourceQOSStrategy.BEClass.NetworkQOS.Enable = new(false) },
		"feature off": func(f *decide.Facts) { f.View.Modes[protocol.FeatureNetwork] = node.Off },
		"observed":    func(f *decide.Facts) { f.View.Modes[protocol.FeatureNetwork] = node.Observe },
		"ceded":       func(f *decide.Facts) { f.View.Ceded = plan.KnobSet(plan.NetShape) },
		"another's work": func(f *decide.Facts) {
			f.View.Strategy.ResourceQOSStrategy.Policies = &strategy.Policies{NETQOSPolicy: new(strategy.NetQOSPolicyTerway)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := facts(strategy.SuppressCPUSet)
			var s decide.State
			if decide.Network(&s, f.View) {
				t.Error("looked at by default")
			}
			share(f)
			if !decide.Network(&s, f.View) {
				t.Fatal("not looked at")
			}
			step := func(want string, owns bool) (out decide.Outcome) {
				t.Helper()
				s, out = decide.Step(s, f)
				got := ""
				for i := range out.Node {
					got = out.Node[i].Value.String()
					f.Link.Now[out.Node[i].Key] = got
				}
				if got != want || out.Owns != owns {
					t.Errorf("%q, owns %v; want %q, %v", got, out.Owns, want, owns)
				}
				return out
			}
			step("", false) // nobody has looked
			f.Link = uplink()
			if out := step(shaped, true); len(out.Network.Directions) != 1 || out.Dynamic.Network.Missing != "" {
				t.Errorf("%+v", out.Network)
			}
			if out := step("", false); len(out.Network.Directions) != 1 {
				t.Errorf("%+v", out.Network)
			}
			f.Urgent = true
			step("", false) // it can wait
			f.Urgent = false
			link := f.Link
			f.Link = nil
			if out := step("", false); len(out.Network.Directions) != 1 {
				t.Errorf("between two looks the outcome is gone: %+v", out.Network)
			}
			f.Link = link
			end(f)
			if !decide.Network(&s, f.View) {
				t.Error("what is ours is not looked at")
			}
			step("default", false)
			step("", true)
			if decide.Network(&s, f.View) {
				t.Error("looked at afterwards")
			}
			f.Link = nil
			if out := step("", false); out.Network.Asked || out.Dynamic.Network != (node.Network{}) {
				t.Errorf("%+v", out.Network)
			}
		})
	}
}

// The pods' addresses come from Kubernetes, their limits from the annotation; what cannot be had is told.
func TestNetworkPods(t *testing.T) {
	t.Parallel()
	f, _ := facts(strategy.SuppressCPUSet)
	share(f)
	f.Link = uplink()
	f.Node = &kube.Node{Annotations: map[string]string{protocol.AnnotationNetworkBandwidth: "1G"}}
	for i := range f.Members {
		f.Members[i].Pod.Ask.Network = &protocol.NetworkQOS{EgressLimit: 1_000_000}
	}
	_, out := decide.Step(decide.State{}, f)
	if len(out.Node) != 1 || !strings.HasPrefix(out.Node[0].Value.String(), "htb total=1000000000 ") {
		t.Errorf("%s", out.Node)
	}
	if !strings.Contains(out.Dynamic.Network.Limited, "without a known address") {
		t.Errorf("%+v", out.Dynamic.Network)
	}
	f.Node.Annotations[protocol.AnnotationNetworkBandwidth] = "wide"
	if _, out = decide.Step(decide.State{}, f); !strings.Contains(out.Dynamic.Network.Limited, protocol.AnnotationNetworkBandwidth+" of the node: bad quantity") {
		t.Errorf("%+v", out.Dynamic.Network)
	}
	f.Link.Name, f.Link.NoLink = "", "this node has no default route"
	if _, out = decide.Step(decide.State{}, f); out.Dynamic.Network.Missing != f.Link.NoLink {
		t.Errorf("%+v", out.Dynamic.Network)
	}
}
