// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// shopPod is the pod of a Deployment: of its containers main spins at its limit, and side holds memory as those of pods.yaml do.
const shopPod = `
apiVersion: v1
kind: Pod
metadata: {name: shop-1-x, namespace: batch, labels: {app: shop, koordinator.sh/qosClass: LS}, ownerReferences: [%s]}
spec:
  nodeName: %s
  dnsPolicy: Default
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + parts.ImageRef + `
    imagePullPolicy: Never
    command: [/bin/sh, -c, 'while :; do :; done']
    resources: {requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 100m, memory: 64Mi}}
  - name: side
    image: ` + parts.ImageRef + `
    imagePullPolicy: Never
    command: [/bin/sh, -c, 'dd if=/dev/zero bs=48M count=1 | sleep 2147483647']
    resources: {requests: {memory: 64Mi}, limits: {memory: 128Mi}}
`

const shopRecommendation = "/apis/analysis.koordinator.sh/v1alpha1/namespaces/batch/recommendations/shop"

// recommends: a koord-manager with the role recommender, and its rights, says what the containers of a Deployment should ask for. It has the node
// tell containers apart, and learns from koordlet's reports, which are true; the wish goes with the pod. No controller is there: the pod is
// made by hand, with the owners that it would have.
func (m *managed) recommends(t *testing.T) {
	at := freeAddresses(t, 2)
	flags := append(m.alone(t.Context(), t, "recommender"), "--metrics-addr="+at[0], "--health-probe-addr="+at[1],
		"--recommend-interval=1s", "--recommend-cold-start=3s", "--v=4")
	r := startProgram(m.outer, filepath.Join(m.dir, "recommender.log"), bin("koord-manager"), flags...)
	apply := func(text string) cluster.Object {
		t.Helper()
		made, err := m.c.Admin().Apply(t.Context(), "lab", false, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return made[0]
	}
	const spec = "spec: {replicas: 1, selector: {matchLabels: {app: shop}}, template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: main, image: i}]}}}\n"
	deployment := apply("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop, namespace: batch}\n" + spec)
	replicas := apply("apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: shop-1, namespace: batch, ownerReferences: [" + owner("apps/v1", "Deployment", deployment) + "]}\n" + spec)
	apply("apiVersion: analysis.koordinator.sh/v1alpha1\nkind: Recommendation\nmetadata: {name: shop, namespace: batch}\n" +
		"spec: {target: {type: workload, workload: {apiVersion: apps/v1, kind: Deployment, name: shop}}}\n")
	apply(fmt.Sprintf(shopPod, owner("apps/v1", "ReplicaSet", replicas), m.k.Node))
	m.ready(t, "shop-1-x")
	begun := time.Now()
	eventually(t, 30*time.Second, func() error { return m.apartIs(t, true) })

	reported := map[string]map[string]use{}
	var told cluster.Object
	eventually(t, 3*time.Minute, func() (err error) {
		m.reportsOf(t, "shop-1-x", reported)
		if told, err = m.c.Admin().Get(t.Context(), shopRecommendation); err == nil && (told.Condition("PodsObserved") != "True" || told.Condition("RecommendationProvided") != "True") {
			err = errors.New(told.Compact("status"))
		}
		return err
	})
	m.reportsOf(t, "shop-1-x", reported) // one may have come in between
	t.Logf("recommended %s after the pod was ready, from %v: %s", time.Since(begun).Round(time.Millisecond), reported, told.Compact("status", "podStatus"))
	m.fits(t, told, reported)

	if err := m.c.Admin().Delete(t.Context(), batchPods+"shop-1-x", -1); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error { return m.apartIs(t, false) })
	r.end(t)
}

// apartIs is an error unless the node is asked to tell the containers of pods apart, or is not.
func (m *managed) apartIs(t *testing.T, want bool) error {
	t.Helper()
	o, err := m.c.Admin().Get(t.Context(), reports+"/"+m.k.Node)
	if err != nil {
		return err
	}
	if is := o.At("spec", "metricCollectPolicy", "containerMetrics") == true; is != want {
		return fmt.Errorf("asked for containers: %t, want %t: %s", is, want, o.Compact("spec"))
	}
	return nil
}

// use is CPUs and bytes.
type use struct{ cpu, memory float64 }

// reportsOf adds the newest report that tells the containers of a pod apart, by its time and their names.
func (m *managed) reportsOf(t *testing.T, pod string, to map[string]map[string]use) {
	t.Helper()
	o, err := m.c.Admin().Get(t.Context(), reports+"/"+m.k.Node)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := o.At("status", "podMetrics").([]any)
	for i := range list {
		at := func(path ...any) string { return o.Str(append([]any{"status", "podMetrics", i}, path...)...) }
		containers, _ := o.At("status", "podMetrics", i, "containers").([]any)
		if at("podRef", "name") != pod || len(containers) == 0 {
			continue
		}
		uses := map[string]use{}
		for c := range containers {
			cpu, memory := at("containers", c, "usage", "cpu"), at("containers", c, "usage", "memory")
			if cpu == "" || memory == "" {
				return // of a container that has just started
			}
			uses[at("containers", c, "name")] = use{amount(t, cpu), amount(t, memory)}
		}
		to[o.Str("status", "updateTime")] = uses
	}
}

// fits compares a Recommendation with the reports that it was made from, and the last of these with what the containers do. The target is 15 % more than the end
// of the bucket of one of the reports, rounded up to milli-cores and MiB; a bucket is as wide as the first one and 5 % of where it starts.
func (m *managed) fits(t *testing.T, told cluster.Object, reported map[string]map[string]use) {
	t.Helper()
	if len(reported) < 2 {
		t.Fatalf("%d reports, and something is recommended: %v", len(reported), reported)
	}
	last := reported[slices.Max(slices.Collect(maps.Keys(reported)))]
	for name, want := range map[string][4]float64{"main": {0.05, 0.12, 0.01, 16}, "side": {0, 0.05, 40, 64}} { // CPUs from, to; MiB from, to
		if u := last[name]; u.cpu < want[0] || u.cpu > want[1] || u.memory < want[2]*mib || u.memory > want[3]*mib {
			t.Errorf("%s is told to use %.3f CPUs and %.1f MiB, want %v", name, u.cpu, u.memory/mib, want)
		}
	}
	const margin, wider = 1.15, 1.05
	first, step := map[string]float64{"cpu": 0.025, "memory": 5 * mib}, map[string]float64{"cpu": 0.001, "memory": mib}
	list, _ := told.At("status", "podStatus", "containerStatuses").([]any)
	var names []string
	for i := range list {
		at := []any{"status", "podStatus", "containerStatuses", i}
		name := told.Str(append(at, "containerName")...)
		names = append(names, name)
		for resource, of := range map[string]func(use) float64{"cpu": func(u use) float64 { return u.cpu }, "memory": func(u use) float64 { return u.memory }} {
			var all []float64
			for _, uses := range reported {
				all = append(all, of(uses[name]))
			}
			is := func(field string) float64 {
				return float64(quantityAt(t, told, append(slices.Clone(at), field, resource)...)) / 1000
			}
			low, high := margin*slices.Min(all), margin*(wider*slices.Max(all)+first[resource])
			if target := is("resources"); target < low || target > high+step[resource] {
				t.Errorf("%s of %s: %g is recommended, want %g to %g of %v", resource, name, target, low, high, all)
			}
			if lower, target, upper := is("lowerBound"), is("resources"), is("upperBound"); lower <= 0 || lower > target || target > upper {
				t.Errorf("%s of %s: %g, %g, %g", resource, name, lower, target, upper)
			}
		}
	}
	if slices.Sort(names); strings.Join(names, " ") != "main side" {
		t.Errorf("recommended for %q", names)
	}
}
