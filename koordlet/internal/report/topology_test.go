// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
	"github.com/koord-rt/koord-rt/koordlet/internal/kubeletopt"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

const topologies = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"

// checkpoint is of a kubelet with the static policy.
const checkpoint = `{"policyName":"static","defaultCpuSet":"0-1","entries":{"web-uid":{"app":"2","side":"3"},"gone":{"app":"1"},"lsr-uid":{"app":"1"}},"checksum":1}`

// machine has two memory nodes of two CPUs each.
func machine() *Machine {
	return &Machine{
		Topology: topo.New([]topo.CPU{
			{ID: 0}, {ID: 1, Core: 1}, {ID: 2, Core: 2, Socket: 1, Node: 1}, {ID: 3, Core: 2, Socket: 1, Node: 1},
		}, topo.CPUs(0, 1)),
		Memory: map[int]unit.Bytes{0: 64 * gib, 1: 63*gib + 1024},
		Model:  "Xeon", Vendor: "GenuineIntel", HyperThreads: true, L3Mask: 0x7ff,
	}
}

func topologyInput(t *testing.T) *TopologyInput {
	t.Helper()
	kubelet, err := ParseCheckpoint([]byte(checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	return &TopologyInput{
		Machine: machine(), Kubelet: kubelet, Reserved: topo.CPUs(0),
		Pods: podstest.Snapshot(t,
			object("web", `{}`, "Guaranteed", "Running", `{"cpu":"2","memory":"1Gi"}`, `{"cpu":"2","memory":"1Gi"}`),
			object("lsr", `{"koordinator.sh/qosClass":"LSR"}`, "Guaranteed", "Running", `{"cpu":"1","memory":"1Gi"}`, `{"cpu":"1","memory":"1Gi"}`),
		),
		SharePools: []node.Pool{{CPUs: topo.CPUs(1)}},
		Node:       map[string]string{protocol.AnnotationNodeReservation: `{"reservedCPUs":"0"}`},
	}
}

func built(t *testing.T) Topology {
	t.Helper()
	out, err := BuildTopology(topologyInput(t))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBuildTopology(t *testing.T) {
	t.Parallel()
	want := Topology{
		Labels: map[string]string{labelManaged: managedBy, protocol.LabelNUMAReservation: ""},
		Annotations: map[string]string{
			"node.koordinator.sh/cpu-topology": `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":0,"node":0},` +
				`{"id":2,"core":2,"socket":1,"node":1},{"id":3,"core":2,"socket":1,"node":1}]}`,
			"node.koordinator.sh/cpu-basic-info":        `{"cpuModel":"Xeon","hyperThreadEnabled":true,"catL3CbmMask":"7ff","vendorID":"GenuineIntel"}`,
			"kubelet.koordinator.sh/cpu-manager-policy": `{"policy":"static","reservedCPUs":"0"}`,
			"node.koordinator.sh/pod-cpu-allocs":        `[{"namespace":"default","name":"web","uid":"web-uid","cpuset":"2-3","managedByKubelet":true}]`,
			"node.koordinator.sh/cpu-shared-pools":      `[{"socket":0,"node":0,"cpuset":"1"}]`,
			"node.koordinator.sh/be-cpu-shared-pools":   `[]`,
			"node.koordinator.sh/reservation":           `{"reservedCPUs":"0"}`,
			"node.koordinator.sh/system-qos-resource":   ``,
		},
		Zones: []Zone{
			{Name: "node-0", Type: "Node", Resources: []ZoneResource{{"cpu", "2", "2", "2"}, {"memory", "64Gi", "64Gi", "64Gi"}}},
			{Name: "node-1", Type: "Node", Resources: []ZoneResource{{"cpu", "2", "2", "2"}, {"memory", "66060289Ki", "66060289Ki", "66060289Ki"}}},
		},
	}
	if d := cmp.Diff(want, built(t)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	bare := topologyInput(t)
	bare.Kubelet, bare.Machine.L3Mask = Checkpoint{}, 0
	got, err := BuildTopology(bare)
	if err != nil || got.Annotations[protocol.AnnotationPodCPUAllocs] != "[]" || strings.Contains(got.Annotations[protocol.AnnotationCPUBasicInfo], "Mask") {
		t.Errorf("without kubelet and cache: %v, %v", got.Annotations, err)
	}
}

// What the kubelet was told wins over its checkpoint, and what its static policy keeps is reserved with ours.
func TestBuildTopologyOfTheKubelet(t *testing.T) {
	t.Parallel()
	in := topologyInput(t)
	in.Options = &kubeletopt.Options{
		CPUPolicy: "static", CPUOptions: map[string]string{"full-pcpus-only": "true"}, ReservedCPU: 1200, TopologyPolicy: "restricted", TopologyScope: "pod",
	}
	got, err := BuildTopology(in)
	const told = `{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-1"}`
	if err != nil || got.Annotations[protocol.AnnotationCPUManagerPolicy] != told || got.Policy != "RestrictedPodLevel" {
		t.Errorf("%s, %s, %v", got.Annotations[protocol.AnnotationCPUManagerPolicy], got.Policy, err)
	}
	in.Options = &kubeletopt.Options{CPUPolicy: "none", ReservedCPU: 1200, TopologyPolicy: "none", TopologyScope: "container"}
	if got, err = BuildTopology(in); err != nil || got.Annotations[protocol.AnnotationCPUManagerPolicy] != `{"policy":"none","reservedCPUs":"0"}` || got.Policy != "None" {
		t.Errorf("%s, %s, %v", got.Annotations[protocol.AnnotationCPUManagerPolicy], got.Policy, err)
	}
	for _, c := range [][3]string{
		{"best-effort", "container", "BestEffortContainerLevel"}, {"best-effort", "pod", "BestEffortPodLevel"},
		{"restricted", "container", "RestrictedContainerLevel"}, {"single-numa-node", "container", "SingleNUMANodeContainerLevel"},
		{"single-numa-node", "pod", "SingleNUMANodePodLevel"}, {"none", "pod", "None"}, {"unheard-of", "pod", "None"}, {"restricted", "galaxy", "None"},
	} {
		if got := topologyPolicy(&kubeletopt.Options{TopologyPolicy: c[0], TopologyScope: c[1]}); got != c[2] {
			t.Errorf("%s of a %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// With the label, what the kubelet keeps is taken from the zones in equal parts, rounded up.
func TestZonesKeepWhatTheKubeletReserves(t *testing.T) {
	t.Parallel()
	in := topologyInput(t)
	in.Kept = Figures{CPU: 501, Memory: 3*gib + 1}
	resources := func(label string) [][]ZoneResource {
		in.Labels = map[string]string{protocol.LabelNUMAReservation: label}
		got, err := BuildTopology(in)
		if err != nil || got.Labels[protocol.LabelNUMAReservation] != label {
			t.Fatalf("%v, %v", got.Labels, err)
		}
		return [][]ZoneResource{got.Zones[0].Resources, got.Zones[1].Resources}
	}
	whole := []ZoneResource{{"cpu", "2", "2", "2"}, {"memory", "64Gi", "64Gi", "64Gi"}}
	if got := resources("false"); !slices.Equal(got[0], whole) {
		t.Errorf("%v", got)
	}
	// 1.5 GiB and a half byte, rounded up.
	left := amount.Quantity(amount.FormatMemory(64*gib - 3*gib/2 - 1))
	if got, want := resources("true"), []ZoneResource{{"cpu", "2", "1749m", "1749m"}, {"memory", "64Gi", left, left}}; !slices.Equal(got[0], want) {
		t.Errorf("%v, want %v", got[0], want)
	}
	in.Kept.CPU = 100000
	if got := resources("true")[1][0]; got != (ZoneResource{"cpu", "2", "0", "0"}) {
		t.Errorf("more is kept than there is: %v", got)
	}
}

// A policy that is known is written, and follows the kubelet; the node's label comes and goes with it.
func TestTopologyPolicyFollowsTheKubelet(t *testing.T) {
	t.Parallel()
	api := kubetest.New(t)
	api.Serve(topologies)
	want := built(t)
	w := writer(t, api, func() (Topology, bool) { return want, true })
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	stands := func(policy, label string) {
		t.Helper()
		for range 3 {
			w.look(t.Context(), now)
			now = now.Add(topologySettle)
		}
		var got topologyObject
		reread(t, api.Object(topologies, "node-001"), &got)
		if !slices.Equal(got.Policies, []string{policy}) || got.Metadata.Labels[protocol.LabelNUMAReservation] != label || w.State().Err != nil {
			t.Errorf("%v %v %v, want %s %q", got.Policies, got.Metadata.Labels, w.State().Err, policy, label)
		}
	}
	stands("None", "")
	want.Policy, want.Labels = "BestEffortPodLevel", map[string]string{labelManaged: managedBy, protocol.LabelNUMAReservation: "true"}
	stands("BestEffortPodLevel", "true")
	want.Policy, want.Labels = "", map[string]string{labelManaged: managedBy, protocol.LabelNUMAReservation: ""}
	stands("BestEffortPodLevel", "")
	want.Policy = "None"
	stands("None", "")
}

func TestParseCheckpointRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "[]", "{}", `{"policyName":"static","entries":{"u":{"c":"x"}}}`, `{"policyName":"` + strings.Repeat("x", maxCheckpoint) + `"}`} {
		if c, err := ParseCheckpoint([]byte(text)); err == nil || c.Policy != "" {
			t.Errorf("%.40q: %+v, %v", text, c, err)
		}
	}
	if c, err := ParseCheckpoint([]byte(`{"policyName":"none","defaultCpuSet":"","checksum":1}`)); err != nil || c.Policy != "none" || len(c.Entries) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte(checkpoint))
	f.Add([]byte(`{"policyName":"none","entries":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCheckpoint(b)
		if err == nil && c.Policy == "" || err != nil && c.Entries != nil {
			t.Fatalf("%+v, %v", c, err)
		}
		for uid, set := range c.Entries {
			if set.Empty() {
				t.Fatalf("%q has no CPUs", uid)
			}
		}
	})
}

// writer is one against a real server.
func writer(t *testing.T, api *kubetest.Server, build func() (Topology, bool)) *TopologyWriter {
	t.Helper()
	client, err := kube.New(kube.Config{Server: api.URL, Trust: api.Trust})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w, err := NewTopology(TopologyOptions{API: client, Node: "node-001", Build: build})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// The object is made, is left alone while it says everything, and what somebody took away comes back.
func TestTopologyIsKept(t *testing.T) {
	t.Parallel()
	api := kubetest.New(t)
	api.Serve(topologies)
	want := built(t)
	w := writer(t, api, func() (Topology, bool) { return want, true })
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	w.look(t.Context(), now)
	type object struct {
		APIVersion, Kind string
		topologyObject
	}
	var got, again object
	reread(t, api.Object(topologies, "node-001"), &got)
	if w.State().Err != nil || got.APIVersion != "topology.node.k8s.io/v1alpha1" || got.Kind != "NodeResourceTopology" || got.Metadata.Labels[labelManaged] != managedBy {
		t.Fatalf("%v, %+v", w.State().Err, got)
	}
	given := maps.Clone(want.Annotations)
	maps.DeleteFunc(given, func(_, v string) bool { return v == "" })
	if d := cmp.Diff(given, got.Metadata.Annotations) + cmp.Diff(want.Zones, got.Zones) + cmp.Diff([]string{"None"}, got.Policies); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i := range 30 { // five minutes
		w.look(t.Context(), now.Add(time.Duration(i)*10*time.Second))
	}
	if n := len(api.Requests("")); n != 2 {
		t.Errorf("%d requests for one object that stands, want GET and POST", n)
	}
	// The manager adds its resources and a policy; somebody takes an annotation away.
	o := api.Object(topologies, "node-001")
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(raw), `{"allocatable":"2"`, `{"allocatable":1000,"available":"1000","capacity":"1000","name":"kubernetes.io/batch-cpu"},{"allocatable":"2"`, 1)
	text = strings.Replace(text, `"None"`, `"Restricted"`, 1)
	text = strings.Replace(text, "cpu-topology", "cpu-typology", 1)
	api.Put(t, topologies, text)
	w.look(t.Context(), now.Add(2*topologyReread))
	reread(t, api.Object(topologies, "node-001"), &again)
	if again.Metadata.Annotations[protocol.AnnotationCPUTopology] != want.Annotations[protocol.AnnotationCPUTopology] {
		t.Errorf("the topology is still away: %v, %v", again.Metadata.Annotations, w.State().Err)
	}
	if !slices.ContainsFunc(again.Zones[0].Resources, func(r ZoneResource) bool { return r.Name == "kubernetes.io/batch-cpu" && r.Allocatable == "1000" }) ||
		len(again.Zones[0].Resources) != 3 || again.Policies[0] != "Restricted" {
		t.Errorf("what the manager wrote is lost: %+v %v", again.Zones, again.Policies)
	}
	if s := w.State(); s.Writes != 2 || s.Reads != 2 {
		t.Errorf("%+v", s)
	}
}

// A pod's start changes several things within seconds: one write, when they stand; and one a minute when they never do.
func TestTopologySettles(t *testing.T) {
	t.Parallel()
	api := kubetest.New(t)
	api.Serve(topologies)
	now := built(t)
	w := writer(t, api, func() (Topology, bool) {
		return Topology{Annotations: maps.Clone(now.Annotations), Zones: now.Zones}, true
	})
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	look := func(pools string) uint64 {
		if pools != "" {
			now.Annotations[protocol.AnnotationCPUSharedPools] = pools
		}
		w.look(t.Context(), at)
		at = at.Add(DefaultCheck)
		return w.State().Writes
	}
	var writes []uint64
	for _, pools := range []string{"[]", "", "[1]", "[2]", "", ""} {
		writes = append(writes, look(pools))
	}
	for i := range 8 {
		writes = append(writes, look(strings.Repeat("x", i+1)))
	}
	if d := cmp.Diff([]uint64{1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3}, writes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A cluster without the kind is asked now and then, one that says no is heard, a lost race is run again.
func TestTopologyFailures(t *testing.T) {
	t.Parallel()
	api := kubetest.New(t)
	known := false
	w := writer(t, api, func() (Topology, bool) { return built(t), known })
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	w.look(t.Context(), at)
	if n := len(api.Requests("")); n != 0 {
		t.Errorf("%d requests though nothing is known", n)
	}
	known = true
	for range 30 {
		w.look(t.Context(), at)
		at = at.Add(DefaultCheck)
	}
	// At 0, 10, 30, 70 and 150 s: soon, should the server have just started, and then ever less often.
	if n := len(api.Requests("")); n != 5 || !errors.Is(w.State().Err, kube.ErrNotServed) {
		t.Errorf("%d requests in five minutes for a kind that is not served, %v", n, w.State().Err)
	}
	api.Put(t, topologies, `{"metadata":{"name":"node-001"},"zones":[],"topologyPolicies":[]}`)
	at = at.Add(topologyReread)
	stale, err := NewTopology(TopologyOptions{Node: "node-001", Build: w.o.Build, API: racing{w.o.API, func() {
		api.Put(t, topologies, `{"metadata":{"name":"node-001","annotations":{"x":"y"}},"zones":[],"topologyPolicies":[]}`)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if wrote, err := stale.write(t.Context(), &Topology{Annotations: map[string]string{"a": "b"}}); !wrote || !errors.Is(err, kube.ErrConflict) {
		t.Errorf("a race: %v, %v", wrote, err)
	}
	stale.look(t.Context(), at)
	if got := stale.State(); !errors.Is(got.Err, kube.ErrConflict) || got.Writes != 0 || !got.Written.IsZero() {
		t.Errorf("a lost race counts as written: %+v", got)
	}
	w.look(t.Context(), at)
	if err := w.State().Err; err != nil || w.State().Writes != 1 {
		t.Errorf("%v, %+v", err, w.State())
	}
	if _, err := NewTopology(TopologyOptions{}); err == nil {
		t.Error("made of nothing")
	}
}

// racing lets somebody else write between reading and writing.
type racing struct {
	ObjectWriter
	meanwhile func()
}

func (r racing) Merge(ctx context.Context, kind kube.Resource, name, manager string, patch any) error {
	r.meanwhile()
	return r.ObjectWriter.Merge(ctx, kind, name, manager, patch)
}
