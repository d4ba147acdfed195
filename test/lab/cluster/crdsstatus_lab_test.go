// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// withStatus are objects of the kinds of which the documents print no status, each with one.
const withStatus = `
apiVersion: koordinator.sh/v1alpha1
kind: ElasticQuota
metadata: {name: told, namespace: default}
spec: {min: {cpu: 2}, max: {cpu: 8}}
status:
  used: {cpu: 1500m}
  conditions: [{type: Conflict, status: "True", reason: Exists, message: another, lastTransitionTime: "2026-11-22T12:00:00Z"}]
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: told, namespace: default}
spec: {min: {cpu: 2}, max: {cpu: 8}}
status: {used: {cpu: 1500m}, allocatedQuota: {cpu: "4"}, podAllocatedQuota: {cpu: "2"}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: told, namespace: default}
spec: {minMember: 2}
status: {phase: Scheduling, occupiedBy: default/web, scheduled: 1, running: 1, scheduleStartTime: "2026-11-22T12:00:00Z"}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: PodMigrationJob
metadata: {name: told}
spec: {podRef: {namespace: default, name: web-0}}
status:
  phase: Running
  nodeName: node-001
  podRef: {namespace: default, name: web-1}
  conditions: [{type: ReservationCreated, status: "True", lastTransitionTime: "2026-11-22T12:00:00Z"}]
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: ClusterNetworkTopology
metadata: {name: told}
spec: {networkTopologySpec: [{topologyLayer: SpineLayer}]}
status: {detailStatus: [{topologyInfo: {topologyLayer: SpineLayer, topologyName: s0}, childTopologyNames: [n0], nodeNum: 1}]}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: ScheduleExplanation
metadata: {name: told, namespace: default}
spec: {questionObjectKey: default/web-0}
status:
  schedulable: false
  failedMessage: no room
  detailedExplanation: [{topologyDomain: s0, schedulable: false}]
`

// status: a printed status is not stored with the object, nothing of it is lost when it is written apart, and who writes the object then changes nothing of
// it. So of every kind whose status has fields.
func (d *defined) status(ctx context.Context, t *testing.T) {
	unseen := map[string]bool{}
	for name, o := range everyDefinition(t) {
		fields, _ := o.At("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "status", "properties").(map[string]any)
		unseen[name] = len(fields) > 0
	}
	for _, file := range []string{
		"manifests/m05-nodeslo.yaml", "manifests/m07-nodemetric.yaml", "manifests/m08-reservation-spark.yaml",
		"manifests/m11-elasticquota-team-a.yaml", "manifests/m14-device.yaml", "upstream/recommendation.yaml",
	} {
		at := d.apart(ctx, t, file, object(t, file))
		unseen[definitionOf(at)] = false
	}
	for text := range strings.SplitSeq(withStatus, "\n---") {
		o, err := cluster.ParseObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		at := d.apart(ctx, t, o.Str("apiVersion")+" "+o.Str("kind"), o)
		unseen[definitionOf(at)] = false
		if err := d.c.Admin().Delete(ctx, at, -1); err != nil {
			t.Error(err)
		}
	}
	for name, is := range unseen {
		if is {
			t.Errorf("%s: nobody writes its status: give one in withStatus", name)
		}
	}

	bad := map[string]any{"status": map[string]any{"deviceAllocations": []any{map[string]any{
		"device":      map[string]any{"deviceType": "gpu", "uuid": "a"},
		"allocations": []any{map[string]any{"pod": map[string]any{"namespace": "a", "name": "b"}, "allocated": "101%"}},
	}}}}
	const device = "/apis/scheduling.koordinator.sh/v1alpha1/devices/node-001/status"
	if _, err := d.c.Admin().Patch(ctx, device, cluster.MergePatch, bad); err == nil || !strings.Contains(err.Error(), "allocations[0].allocated") {
		t.Errorf("more than a whole device: %v", err)
	}
}

// definitionOf is the name of the definition of an object's kind, by the object's path.
func definitionOf(at string) string { return path.Base(path.Dir(at)) + "." + strings.Split(at, "/")[2] }

// apart makes an object with a status, writes that apart, and returns the object's path.
func (d *defined) apart(ctx context.Context, t *testing.T, what string, o cluster.Object) string {
	t.Helper()
	want := o["status"]
	at, err := d.c.Admin().Path(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	made, err := d.c.Admin().Create(ctx, path.Dir(at)+"?fieldValidation=Strict", o)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if made["status"] != nil {
		t.Errorf("%s: a status was stored with the object: %s", what, made.Compact("status"))
	}
	got, err := d.c.Admin().Patch(ctx, at+"/status?fieldValidation=Strict", cluster.MergePatch, map[string]any{"status": want})
	if err != nil {
		t.Errorf("%s: write the status: %v", what, err)
		return at
	}
	if diff := cmp.Diff(want, got["status"]); diff != "" {
		t.Errorf("%s: status as it was stored: %s", what, diff)
	}
	if got, err = d.c.Admin().Patch(ctx, at+"/status", cluster.MergePatch, map[string]any{"spec": map[string]any{"x": 1}}); err != nil ||
		cmp.Diff(made["spec"], got["spec"]) != "" {
		t.Errorf("%s: a spec was written with the status: %v", what, err)
	}
	if got, err = d.c.Admin().Patch(ctx, at, cluster.MergePatch, map[string]any{"status": nil}); err != nil {
		t.Errorf("%s: write the object: %v", what, err)
	} else if diff := cmp.Diff(want, got["status"]); diff != "" {
		t.Errorf("%s: the status was written with the object: %s", what, diff)
	}
	return at
}
