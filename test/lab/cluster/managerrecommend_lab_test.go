// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// TestClusterManagerRecommends: koord-manager with the role recommender alone, and the rights of packaging/manifests, against a real API
// server. Nodes are simulated: their NodeMetrics are fed here. A Deployment's container gets its recommendation, one that starts anew
// says the same, conditions tell why there is none, and a node is asked for the containers of a pod that has two.
func TestClusterManagerRecommends(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	log := newAuditOf(t, filepath.Join(dir, "audit"), managerPolicy)
	c := start(t, filepath.Join(dir, "cluster"), log.flags()...)
	r := &recommended{managed: &managed{governed: &governed{colocated: &colocated{c: c}, audit: log, outer: t}}, dir: dir}
	r.begin(ctx, t)
	r.manager(t)
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"conditions", r.conditions}, {"asked", r.asked}, {"deployment", r.deployment}, {"top", r.topOfCluster}, {"restart", r.restart}, {"rights", r.granted},
	} {
		if !t.Run(s.name, s.test) {
			return // each goes on from where the one before has ended
		}
	}
}

// recommended is a cluster without nodes, and a koord-manager that recommends.
type recommended struct {
	*managed
	dir     string
	started int
	running *process
}

const (
	recommendations = "/apis/analysis.koordinator.sh/v1alpha1/namespaces/shop/recommendations"
	shopPods        = "/api/v1/namespaces/shop/pods"
)

// begin puts definitions, rights, workloads and their pods into the cluster. No controller and no kubelet is there: the pods are made by
// hand, with the owners that they would have.
func (r *recommended) begin(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := r.c.ApplyFolder(ctx, definitions); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{system, "shop"} {
		if err := r.c.Namespace(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	account := cluster.Object{"metadata": map[string]any{"name": "koord-manager"}}
	if _, err := r.c.Admin().Create(ctx, "/api/v1/namespaces/"+system+"/serviceaccounts", account); err != nil {
		t.Fatal(err)
	}
	r.put(ctx, t, read(t, manifest("rbac-recommender")))
	const template = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: i}]}}"
	r.put(ctx, t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 1, selector: {matchLabels: {app: web}}, "+template+"}\n")
	deployment := r.get(t, "/apis/apps/v1/namespaces/shop/deployments/web")
	r.put(ctx, t, "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web-abc, namespace: shop, ownerReferences: ["+
		owner("apps/v1", "Deployment", deployment)+"]}\nspec: {replicas: 1, selector: {matchLabels: {app: web}}, "+template+"}\n")
	replicas := r.get(t, "/apis/apps/v1/namespaces/shop/replicasets/web-abc")
	r.put(ctx, t, podOn("web-abc-1", "node-1", owner("apps/v1", "ReplicaSet", replicas), "app"))
	r.put(ctx, t, "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: night, namespace: shop}\nspec: {schedule: '0 0 * * *', "+
		"jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: job, image: i}]}}}}}\n")
	night := r.get(t, "/apis/batch/v1/namespaces/shop/cronjobs/night")
	r.put(ctx, t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: night-1, namespace: shop, ownerReferences: ["+
		owner("batch/v1", "CronJob", night)+"]}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: job, image: i}, {name: side, image: i}]}}}\n")
	job := r.get(t, "/apis/batch/v1/namespaces/shop/jobs/night-1")
	r.put(ctx, t, podOn("night-1-x", "node-2", owner("batch/v1", "Job", job), "job", "side"))
	for _, node := range []string{"node-1", "node-2"} {
		r.put(ctx, t, "apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeMetric\nmetadata: {name: "+node+"}\nspec: {metricCollectPolicy: {reportIntervalSeconds: 60}}\n")
	}
	for name, target := range map[string]string{
		"web":      "type: workload, workload: {apiVersion: apps/v1, kind: Deployment, name: web}",
		"selector": "type: podSelector, podSelector: {matchLabels: {app: web-abc-1}}",
		"night":    "type: workload, workload: {apiVersion: batch/v1, kind: CronJob, name: night}",
	} {
		r.recommend(ctx, t, name, target)
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "ReplicationController"} {
		r.recommend(ctx, t, "no-"+strings.ToLower(kind), "type: workload, workload: {kind: "+kind+", name: nobody}")
	}
}

func (r *recommended) recommend(ctx context.Context, t *testing.T, name, target string) {
	t.Helper()
	r.put(ctx, t, "apiVersion: analysis.koordinator.sh/v1alpha1\nkind: Recommendation\nmetadata: {name: "+name+", namespace: shop}\nspec: {target: {"+target+"}}\n")
}

func (r *recommended) put(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	if _, err := r.c.Admin().Apply(ctx, "lab", false, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (r *recommended) get(t *testing.T, path string) cluster.Object {
	t.Helper()
	o, err := r.c.Admin().Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// owner is a reference to the controller of a pod, or of what owns it.
func owner(apiVersion, kind string, o cluster.Object) string {
	return fmt.Sprintf("{apiVersion: %s, kind: %s, name: %s, uid: %s, controller: true}", apiVersion, kind, o.Str("metadata", "name"), o.Str("metadata", "uid"))
}

// podOn is a pod that is bound to a node.
func podOn(name, node, owner string, containers ...string) string {
	var list []string
	for _, c := range containers {
		list = append(list, "{name: "+c+", image: i, resources: {requests: {cpu: 500m, memory: 512Mi}}}")
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: shop, labels: {app: " + name + "}, ownerReferences: [" + owner + "]}\n" +
		"spec: {nodeName: " + node + ", containers: [" + strings.Join(list, ", ") + "]}\n"
}

// manager starts koord-manager anew.
func (r *recommended) manager(t *testing.T) {
	t.Helper()
	kubeconfig, err := r.c.Kubeconfig(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+system)
	if err != nil {
		t.Fatal(err)
	}
	if r.running != nil {
		// Asked to end, it gives the lease back, and the next one need not wait for it.
		if err := r.running.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-r.running.done
	}
	at := freeAddresses(t, 2)
	r.running = r.runs(kubeconfig, "--metrics-addr="+at[0], "--health-probe-addr="+at[1], "--roles=recommender", "--recommend-interval=1s", "--recommend-cold-start=3s")
}

// runs is a koord-manager with these arguments; it lasts as long as the whole test.
func (r *recommended) runs(kubeconfig string, args ...string) *process {
	r.started++
	log := filepath.Join(r.dir, fmt.Sprintf("manager-%d.log", r.started))
	return startProgram(r.outer, log, bin("koord-manager"), append([]string{"--kubeconfig=" + kubeconfig, "--v=4"}, args...)...)
}

// report feeds what a pod of a node uses now, by containers where they are given: name, CPU, memory.
func (r *recommended) report(t *testing.T, node, pod, cpu, memory string, containers ...[3]string) {
	t.Helper()
	use := func(cpu, memory string) map[string]any { return map[string]any{"cpu": cpu, "memory": memory} }
	status := map[string]any{
		"updateTime": time.Now().UTC().Format(time.RFC3339),
		"podsMetric": []any{map[string]any{"namespace": "shop", "name": pod, "podUsage": map[string]any{"resources": use(cpu, memory)}}},
	}
	var list []any
	for _, c := range containers {
		list = append(list, map[string]any{"name": c[0], "usage": use(c[1], c[2])})
	}
	if list != nil {
		status["podMetrics"] = []any{map[string]any{"podRef": map[string]any{"namespace": "shop", "name": pod}, "containers": list}}
	}
	if _, err := r.c.Admin().Patch(t.Context(), reports+"/"+node+"/status", cluster.MergePatch, map[string]any{"status": status}); err != nil {
		t.Fatal(err)
	}
}

// is fails unless a Recommendation's conditions have these reasons.
func (r *recommended) is(t *testing.T, name, observed, provided string) error {
	t.Helper()
	o := r.get(t, recommendations+"/"+name)
	reason := func(kind string) string {
		list, _ := o.At("status", "conditions").([]any)
		for i := range list {
			if o.Str("status", "conditions", i, "type") == kind {
				return o.Str("status", "conditions", i, "reason")
			}
		}
		return ""
	}
	if reason("PodsObserved") != observed || reason("RecommendationProvided") != provided {
		return fmt.Errorf("%s: want %s and %s: %s", name, observed, provided, o.Compact("status"))
	}
	return nil
}

// conditions: who has no pods, or does not exist, is told so.
func (r *recommended) conditions(t *testing.T) {
	eventually(t, 30*time.Second, func() error {
		var errs []error
		for _, kind := range []string{"deployment", "statefulset", "daemonset", "replicaset", "job", "cronjob", "replicationcontroller"} {
			errs = append(errs, r.is(t, "no-"+kind, "WorkloadNotFound", "NotEnoughHistory"))
		}
		return errors.Join(errs...)
	})
}

// asked: a node whose pod has two containers is asked for their figures, and the wish is ours alone.
func (r *recommended) asked(t *testing.T) {
	eventually(t, 15*time.Second, func() error {
		o := r.get(t, reports+"/node-2")
		if got := o.Compact("spec"); got != `{"metricCollectPolicy":{"containerMetrics":true,"reportIntervalSeconds":60}}` {
			return fmt.Errorf("spec of node-2: %s", got)
		}
		return nil
	})
	if got := r.get(t, reports+"/node-1").Compact("spec"); got != `{"metricCollectPolicy":{"reportIntervalSeconds":60}}` {
		t.Errorf("node-1 was asked too: %s", got)
	}
}

// deployment: a core and a gibibyte, for some seconds: the target is that of the worked example of policy/recommend.
func (r *recommended) deployment(t *testing.T) {
	eventually(t, 30*time.Second, func() error {
		r.report(t, "node-1", "web-abc-1", "1", "1Gi")
		r.report(t, "node-2", "night-1-x", "3", "3Gi", [3]string{"job", "1", "1Gi"}, [3]string{"side", "100m", "1Gi"})
		return errors.Join(r.is(t, "web", "Measured", "Provided"), r.is(t, "night", "Measured", "Provided"), r.is(t, "selector", "Measured", "Provided"))
	})
	for name, want := range map[string]string{"web": "app 1192m 1204Mi", "selector": "app 1192m 1204Mi", "night": "job 1192m 1204Mi, side 124m 1204Mi"} {
		if got := r.targets(t, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	o := r.get(t, recommendations+"/web")
	at := []any{"status", "podStatus", "containerStatuses", 0}
	for _, resource := range []string{"cpu", "memory"} {
		amount := func(list string) int64 { return quantityAt(t, o, append(at, list, resource)...) }
		if low, target, high := amount("lowerBound"), amount("resources"), amount("upperBound"); low <= 0 || low > target || target > high {
			t.Errorf("%s: %d, %d, %d", resource, low, target, high)
		}
	}
}

// targets are what is recommended, container by container.
func (r *recommended) targets(t *testing.T, name string) string {
	t.Helper()
	o := r.get(t, recommendations+"/"+name)
	list, _ := o.At("status", "podStatus", "containerStatuses").([]any)
	var out []string
	for i := range list {
		at := func(path ...any) string {
			return o.Str(append([]any{"status", "podStatus", "containerStatuses", i}, path...)...)
		}
		out = append(out, at("containerName")+" "+at("resources", "cpu")+" "+at("resources", "memory"))
	}
	return strings.Join(out, ", ")
}

// restart: what was learned is not lost with the process: nobody reports any more, the pod has gone, and the recommendation stands,
// because the next process has read it; it writes that there are no pods.
func (r *recommended) restart(t *testing.T) {
	before := r.targets(t, "web")
	r.manager(t)
	if err := r.c.Admin().Delete(t.Context(), shopPods+"/web-abc-1", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error { return r.is(t, "web", "NoPods", "Provided") })
	if got := r.targets(t, "web"); got != before {
		t.Errorf("%s, was %s", got, before)
	}
}

// granted: nothing was denied, and nothing of the role is left unused.
func (r *recommended) granted(t *testing.T) {
	compareRights(t, "rbac-recommender", r.managed.asked(t, managerUser), nil)
	// A second time where the API server could not say at first what owns the pods.
	wrote := atRest(t, func() int {
		return len(r.audit.read(t, func(c *call) bool {
			return c.User.Name == managerUser && c.what() == "patch recommendations/status" && c.Object.Name == "no-job" && c.Response.Code < 300
		}))
	})
	if wrote < 1 || wrote > 2 {
		t.Errorf("the status that never changed was written %d times", wrote)
	}
}
