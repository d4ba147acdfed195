// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// guests is the namespace of the pods of scenes.
const guests = "guests"

// load is CPUs and GB of memory.
type load [2]int

// amounts are those of a list of resources of a class of pods: koord-mid and koord-batch ask in their own, by whole milli-cores.
func (l load) amounts(class string) map[string]any {
	memory := strconv.Itoa(l[1]) + "G"
	milli := strconv.Itoa(l[0] * 1000)
	switch class {
	case "koord-mid":
		return map[string]any{protocol.ResourceMidCPU: milli, protocol.ResourceMidMemory: memory}
	case "koord-batch":
		return map[string]any{protocol.ResourceBatchCPU: milli, protocol.ResourceBatchMemory: memory}
	}
	return map[string]any{"cpu": strconv.Itoa(l[0]), "memory": memory}
}

// reported is it as a NodeMetric has it.
func (l load) reported() map[string]any { return map[string]any{"resources": l.amounts("")} }

// guest is a pod that is bound to the node.
type guest struct {
	class, qos string // its PriorityClass and its label, "" for none
	asks       load
	uses       load   // of nothing: it is not in the report
	memoryNode string // the one that a scheduler has given it, "" for none
	gone       bool   // it is in the report alone
	finished   bool
}

// zone is a memory node.
type zone struct {
	id  int
	has load
}

// scene is a node with what it says of itself.
type scene struct {
	has, allocatable    load
	labels, annotations map[string]string
	zones               []zone
	model               string // of its CPUs
	threads, turbo      bool   // that they have
	pods                []guest
	node, system, free  load            // used of all, used by the system, left by production
	hosts               map[string]load // used by host applications of a class
}

func (s *scene) says(annotation, text string) {
	if s.annotations == nil {
		s.annotations = map[string]string{}
	}
	s.annotations[annotation] = text
}

// plain is the scene of Koordinator's tests of batch resources.
func plain() scene {
	return scene{
		has: load{100, 120}, allocatable: load{100, 120}, node: load{50, 55}, system: load{7, 12}, free: load{10, 15},
		pods: []guest{
			{class: "koord-prod", qos: "LS", asks: load{20, 20}, uses: load{11, 11}},
			{class: "koord-batch", qos: "BE", uses: load{10, 10}},
			{class: "koord-prod", qos: "LSR", asks: load{20, 40}, uses: load{22, 22}},
		},
	}
}

// classes is the same with pods of every class.
func classes() scene {
	s := plain()
	s.pods = []guest{
		{class: "koord-prod", qos: "LS", asks: load{10, 10}, uses: load{5, 5}},
		{class: "koord-prod", qos: "LSR", asks: load{10, 10}, uses: load{6, 6}},
		{class: "koord-batch", qos: "BE", asks: load{10, 10}, uses: load{10, 10}},
		{class: "koord-mid", qos: "BE", asks: load{20, 40}, uses: load{22, 22}},
	}
	return s
}

// halves is that with two memory nodes, of which the first has the first pod.
func halves() scene {
	s := classes()
	s.zones, s.pods[0].memoryNode = []zone{{0, load{50, 62}}, {1, load{50, 58}}}, "0"
	return s
}

// middling is the scene of Koordinator's tests of mid resources; no pod is in the report, and the kubelet keeps 10 GB.
func middling() scene {
	return scene{
		has: load{100, 210}, allocatable: load{100, 200}, node: load{20, 45}, free: load{10, 15},
		pods: []guest{{class: "koord-prod", qos: "LS", asks: load{20, 40}}, {class: "koord-batch", qos: "BE", asks: load{15, 30}}},
	}
}

// predicted is what production asks for and will not use.
func predicted(cpus, gb int) func(*scene) { return func(s *scene) { s.free = load{cpus, gb} } }

// stage makes the objects of a scene.
func (n *simulated) stage(t *testing.T, name, strategy string, s *scene) {
	t.Helper()
	s.says(protocol.AnnotationColocationStrategy, "{"+strategy+"}")
	n.create(t, "/api/v1/nodes", cluster.Object{
		"metadata": map[string]any{"name": name, "labels": s.labels, "annotations": s.annotations},
		"status":   map[string]any{"capacity": s.has.amounts(""), "allocatable": s.allocatable.amounts("")},
	})
	if len(s.zones) > 0 {
		n.zones(t, name, s)
	}
	var pods, hosts []any
	for i, g := range s.pods {
		pod := name + "-" + strconv.Itoa(i)
		if !g.gone {
			n.guest(t, name, pod, g)
		}
		if g.uses != (load{}) {
			pods = append(pods, map[string]any{
				"namespace": guests, "name": pod, "podUsage": g.uses.reported(), "priority": koordinators(g.class), "qos": g.qos,
			})
		}
	}
	for class, uses := range s.hosts {
		hosts = append(hosts, map[string]any{"name": "of-" + class, "usage": uses.reported(), "priority": class})
	}
	n.report(t, name, map[string]any{
		"nodeMetric": map[string]any{"nodeUsage": s.node.reported(), "systemUsage": s.system.reported()},
		"podsMetric": pods, "hostApplicationMetric": hosts, "prodReclaimableMetric": map[string]any{"resource": s.free.reported()},
	})
}

// koordinators is a class of Koordinator's, "" for another.
func koordinators(class string) string {
	if strings.HasPrefix(class, "koord-") {
		return class
	}
	return ""
}

func (n *simulated) create(t *testing.T, path string, o cluster.Object) {
	t.Helper()
	if _, err := n.c.Admin().Create(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
}

// report writes the status of a node's NodeMetric, made now, once the manager has made the object.
func (n *simulated) report(t *testing.T, name string, status map[string]any) {
	t.Helper()
	if status["updateTime"] == nil {
		status["updateTime"] = time.Now().UTC().Format(time.RFC3339)
	}
	eventually(t, 60*time.Second, func() error {
		_, err := n.c.Admin().Patch(t.Context(), reports+"/"+name+"/status", cluster.MergePatch, map[string]any{"status": status})
		return err
	})
}

// zones makes the node's NodeResourceTopology.
func (n *simulated) zones(t *testing.T, name string, s *scene) {
	t.Helper()
	var list []any
	for _, z := range s.zones {
		var resources []any
		for resource, amount := range z.has.amounts("") {
			resources = append(resources, map[string]any{"name": resource, "capacity": amount, "allocatable": amount, "available": amount})
		}
		list = append(list, map[string]any{"name": "node-" + strconv.Itoa(z.id), "type": "Node", "resources": resources})
	}
	n.create(t, zones, cluster.Object{
		"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology", "topologyPolicies": []any{"None"}, "zones": list,
		"metadata": map[string]any{"name": name, "annotations": map[string]any{
			protocol.AnnotationCPUBasicInfo: fmt.Sprintf(`{"cpuModel": %q, "hyperThreadEnabled": %t, "turboEnabled": %t}`, s.model, s.threads, s.turbo),
		}},
	})
}

// guest makes a pod as it is once the webhook has seen it.
func (n *simulated) guest(t *testing.T, node, name string, g guest) {
	t.Helper()
	labels, annotations := map[string]any{}, map[string]any{}
	if g.qos != "" {
		labels[protocol.LabelQoSClass] = g.qos
	}
	if g.memoryNode != "" {
		annotations[protocol.AnnotationResourceStatus] = `{"numaNodeResources": [{"node": ` + g.memoryNode + `}]}`
	}
	resources := map[string]any{}
	if g.asks != (load{}) {
		resources["requests"], resources["limits"] = g.asks.amounts(g.class), g.asks.amounts(g.class)
	}
	const pods = "/api/v1/namespaces/" + guests + "/pods"
	n.create(t, pods, cluster.Object{
		"metadata": map[string]any{"name": name, "labels": labels, "annotations": annotations},
		"spec": map[string]any{
			"nodeName": node, "priorityClassName": g.class, "containers": []any{map[string]any{"name": "main", "image": "i", "resources": resources}},
		},
	})
	if g.finished {
		done := map[string]any{"status": map[string]any{"phase": "Succeeded"}}
		if _, err := n.c.Admin().Patch(t.Context(), pods+"/"+name+"/status", cluster.MergePatch, done); err != nil {
			t.Fatal(err)
		}
	}
}

// documentsMetric gives the documents' node the status of M7, in their spelling alone, with pods that ask for as much together as it says: LS for 70
// CPUs, BE for 30. A second one has the same but for what LS pods use, 40 CPUs. Of LS pods the one in podMetrics counts by what it uses,
// 2, the others by the 66 that they ask for.
func (n *simulated) documentsMetric(t *testing.T) map[string]*formula {
	t.Helper()
	const other = "f-documents-system"
	n.node(t, other)
	if err := n.c.Namespace(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	m7 := read(t, "testdata/manifests/m07-nodemetric.yaml")
	for node, change := range map[string]*strings.Replacer{
		documented: strings.NewReplacer(), other: strings.NewReplacer(`"44000m"`, `"40000m"`, `"44Gi"`, `"40Gi"`, "web-server-1", "web-server-2"),
	} {
		o, err := cluster.ParseObject([]byte(change.Replace(m7)))
		if err != nil {
			t.Fatal(err)
		}
		status, _ := o.At("status").(map[string]any)
		delete(status, "updateTime")
		name := o.Str("status", "podMetrics", 0, "podRef", "name")
		for _, p := range [][5]string{
			{name, "LS", "koord-prod", "cpu: 4", "memory: 4Gi"}, {name + "-others", "LS", "koord-prod", "cpu: 66", "memory: 66Gi"},
			{name + "-batch", "BE", "koord-batch", protocol.ResourceBatchCPU + ": 30k", protocol.ResourceBatchMemory + ": 30Gi"},
		} {
			n.put(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, labels: {koordinator.sh/qosClass: %s}}\n"+
				"spec: {nodeName: %s, priorityClassName: %s, containers: [{name: app, image: i, resources: {requests: {%s, %s}, limits: {%[5]s, %[6]s}}}]}\n",
				p[0], p[1], node, p[2], p[3], p[4]))
		}
		n.report(t, node, status)
	}
	return map[string]*formula{
		// 128 × 65 % − (64 − 20 − 44) − 2 − 66 of CPUs and GiB; nothing is predicted.
		documented: {lends: "15200 16320875724 0 0"},
		// The same, less 64 − 20 − 40 of each for the system.
		other: {lends: "11200 12025908428 0 0"},
	}
}

// agrees is an error unless a node lends what its formula says.
func (n *simulated) agrees(t *testing.T, name string, f *formula) error {
	t.Helper()
	node, err := n.c.Admin().Get(t.Context(), "/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	for _, list := range []string{"allocatable", "capacity"} {
		var got []string
		for _, r := range []string{protocol.ResourceBatchCPU, protocol.ResourceBatchMemory, protocol.ResourceMidCPU, protocol.ResourceMidMemory} {
			if amount := node.Str("status", list, r); amount != "" {
				got = append(got, amount)
			}
		}
		if text := strings.Join(got, " "); text != f.lends {
			return fmt.Errorf("%s: %s %q, want %q", name, list, text, f.lends)
		}
	}
	if origin := node.Str("metadata", "annotations", protocol.AnnotationOriginExtended); f.origin != "" && origin != f.origin {
		return fmt.Errorf("%s: before others' bookings %s, want %s", name, origin, f.origin)
	}
	if f.zones == "" {
		return nil
	}
	o, err := n.c.Admin().Get(t.Context(), zones+"/"+name)
	if err != nil {
		return err
	}
	if got := batchOfZones(o); got != f.zones {
		return fmt.Errorf("%s: zones %q, want %q", name, got, f.zones)
	}
	return nil
}

// batchOfZones are batch-cpu and batch-memory of each zone.
func batchOfZones(topology cluster.Object) string {
	var out []string
	list, _ := topology.At("zones").([]any)
	for i := range list {
		amounts := map[string]string{}
		resources, _ := topology.At("zones", i, "resources").([]any)
		for k := range resources {
			amounts[topology.Str("zones", i, "resources", k, "name")] = topology.Str("zones", i, "resources", k, "allocatable")
		}
		out = append(out, amounts[protocol.ResourceBatchCPU]+" "+amounts[protocol.ResourceBatchMemory])
	}
	return strings.Join(out, ", ")
}
