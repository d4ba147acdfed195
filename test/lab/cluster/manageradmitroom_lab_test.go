// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const (
	reservationPath = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/"
	ruledOwners     = "owners: [{labelSelector: {matchLabels: {app: ruled}}}]"
	ruledTemplate   = "template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"
	// deviceTemplate says which devices the room has.
	deviceTemplate = "{metadata: {annotations: {scheduling.koordinator.sh/device-allocated: '{}'}}, spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"
)

// reservationRules: what a Reservation may say, who may say where it is, and what of one may change. That of [admitted.reservations] is placed on node a.
func (a *admitted) reservationRules(t *testing.T) {
	scheduler, err := a.c.As("system:serviceaccount:"+system+":koord-scheduler", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := cluster.ParseObject([]byte(strings.Replace(aReservation, "{name: ruled}", "{name: kept, annotations: {scheduling.koordinator.sh/resource-status: '{}'}}", 1) +
		"{" + ruledOwners + ", template: " + deviceTemplate + "}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.Create(t.Context(), strings.TrimSuffix(reservationPath, "/"), kept); err != nil {
		t.Fatal(err)
	}
	a.judges(t, "vreservation", slices.Concat(reservationCases(), reservationTrustCases(scheduler), reservationChangeCases()))
}

// reservationCases are new ones. That there are owners, and a template, is the definition's to say.
func reservationCases() []objectCase {
	room := func(parts ...string) string { return aReservation + "{" + strings.Join(parts, ", ") + "}" }
	owner := func(o string) string { return room("owners: ["+o+"]", ruledTemplate) }
	template := func(spec string) string { return room(ruledOwners, "template: {spec: "+spec+"}") }
	with := func(more string) string { return room(ruledOwners, ruledTemplate, more) }
	return []objectCase{
		{name: "right", text: with("ttl: 10m"), want: "spec: {ttl: 10m}"},
		{
			name: "too many owners", text: owner(strings.TrimSuffix(strings.Repeat("{object: {name: x}}, ", 1025), ", ")),
			refused: []string{"spec.owners: 1025, at most 1024: name pods by labelSelector"},
		},
		{
			name: "a selector that means nothing", text: owner("{labelSelector: {matchExpressions: [{key: a, operator: Is}]}}"),
			refused: []string{"spec.owners[0].labelSelector: "},
		},
		{name: "a pod without a name", text: owner("{object: {namespace: x}}"), refused: []string{"spec.owners[0].object: has neither name nor uid: say which pod it is"}},
		{name: "an object that is no pod", text: owner("{object: {kind: Job, name: x}}"), refused: []string{"spec.owners[0].object.kind: Job, want Pod"}},
		{
			name: "a controller without a name", text: owner("{controller: {apiVersion: batch/v1, kind: Job, name: '', uid: ''}}"),
			refused: []string{"spec.owners[0].controller: has neither name nor uid: say which Job it is"},
		},
		{
			name: "an owner that says nothing", text: owner("{}"),
			warned: []string{"spec.owners[0]: says nothing, so every pod of the cluster may use the room"},
		},
		{name: "a negative life", text: with("ttl: -5m"), refused: []string{"spec.ttl: -5m0s is negative: give a duration as 24h, or 0 for ever"}},
		{name: "an end that is past", text: with("expires: '2020-01-01T00:00:00Z'"), refused: []string{"spec.expires: 2020-01-01T00:00:00Z is past"}},
		{name: "an end to come", text: with("expires: '2099-01-01T00:00:00Z'")},
		{
			name: "for ever, and until", text: with("ttl: 0s, expires: '2099-01-01T00:00:00Z'"),
			warned: []string{"spec.ttl: 0 is for ever, so expires does nothing: leave one of the two out"},
		},
		{name: "for ever", text: with("ttl: 0s")},
		{
			name: "a policy for nothing", text: with("preAllocationPolicy: {mode: Cluster}"),
			warned: []string{"spec.preAllocationPolicy: does nothing without preAllocation: true"},
		},
		{name: "a policy for something", text: with("preAllocation: true, preAllocationPolicy: {mode: Cluster}")},
		{
			name: "above its limit", text: template("{containers: [{resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}"),
			refused: []string{"spec.template.spec.containers[0].resources: cpu asks for 2, above its limit 1"},
		},
		{
			name: "an init container above its limit", text: template("{initContainers: [{resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}], containers: [{name: main}]}"),
			refused: []string{"spec.template.spec.initContainers[0].resources: memory asks for 2Gi, above its limit 1Gi"},
		},
		{name: "at its limit", text: template("{containers: [{resources: {requests: {cpu: 2}, limits: {cpu: 2000m}}}]}")},
		{
			name: "a negative limit", text: template("{containers: [{resources: {limits: {cpu: -1}}}]}"),
			refused: []string{"spec.template.spec.containers[0].resources.limits: cpu is -1: must not be negative"},
		},
		{
			name: "a negative amount of the pod", text: template("{resources: {requests: {cpu: -1}}, containers: [{name: main}]}"),
			refused: []string{"spec.template.spec.resources.requests: cpu is -1: must not be negative"},
		},
		{
			name: "asks for nothing", text: template("{containers: [{name: main}]}"),
			warned: []string{"spec.template: asks for nothing, so no room is kept: give its containers resources.requests"},
		},
		{
			name: "a taint of no effect", text: with("taints: [{key: x, effect: NoSchedule}, {key: x, effect: Never}]"),
			refused: []string{`spec.taints[1].effect: "Never", want NoSchedule, PreferNoSchedule or NoExecute`},
		},
		{name: "a taint without a key", text: with("taints: [{key: '', effect: NoExecute}]"), refused: []string{"spec.taints[0].key: missing"}},
		{name: "taints", text: with("taints: [{key: x, effect: NoSchedule}, {key: x, effect: PreferNoSchedule}, {key: x, effect: NoExecute}]")},
		{
			name: "two mistakes, both told", text: with("ttl: -5m, taints: [{key: '', effect: NoExecute}]"),
			refused: []string{"spec.ttl: -5m0s is negative", "spec.taints[0].key: missing"},
		},
	}
}

// reservationTrustCases: on which CPUs and devices the room is only schedulers say, on the object and in its template. One that a scheduler has made
// is kept.
func reservationTrustCases(scheduler *cluster.Client) []objectCase {
	const set, remove = "only the scheduler may set or change it: leave it out", "only the scheduler may remove it: keep it"
	const at, inside = "metadata: annotation scheduling.koordinator.sh/resource-status: ", "spec.template.metadata: annotation scheduling.koordinator.sh/device-allocated: "
	const devices = aReservation + "{" + ruledOwners + ", template: " + deviceTemplate + "}"
	template := func(annotations string) string {
		return "spec: {template: {metadata: {annotations: " + annotations + "}}}"
	}
	const word = "{scheduling.koordinator.sh/device-allocated: '{}'}"
	return []objectCase{
		{name: "devices in the template", text: devices, refused: []string{inside + set}},
		{name: "devices in the template by the scheduler", text: devices, by: scheduler, want: template(word)},
		{
			name: "its internal word in the template", text: strings.Replace(devices, "scheduling.koordinator.sh/device-allocated", "internal.scheduling.koordinator.sh/x", 1),
			refused: []string{"spec.template.metadata: annotation internal.scheduling.koordinator.sh/x: " + set},
		},
		{
			name: "another's word in the template", text: strings.Replace(devices, "scheduling.koordinator.sh/device-allocated", "example.com/x", 1),
			want: "spec: {template: {metadata: {annotations: {example.com/x: '{}'}}}}",
		},
		{name: "other devices", path: reservationPath + "kept", change: template(`{scheduling.koordinator.sh/device-allocated: '{"gpu":[]}'}`), refused: []string{inside + set}},
		{name: "no devices", path: reservationPath + "kept", change: template("{scheduling.koordinator.sh/device-allocated: null}"), refused: []string{inside + remove}},
		{name: "no devices by the scheduler", path: reservationPath + "kept", change: template("{scheduling.koordinator.sh/device-allocated: null}"), by: scheduler},
		{
			name: "other CPUs", path: reservationPath + "kept", change: `metadata: {annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"0-3"}'}}`,
			refused: []string{at + set},
		},
		{
			name: "no CPUs", path: reservationPath + "kept", change: "metadata: {annotations: {scheduling.koordinator.sh/resource-status: null}}",
			refused: []string{at + remove},
		},
		{
			name: "something else beside them", path: reservationPath + "kept", change: "metadata: {annotations: {a: b}}\nspec: {ttl: 1h}",
			want: "metadata: {annotations: {a: b, " + protocol.AnnotationResourceStatus + ": '{}'}}\n" + template(word),
		},
	}
}

// reservationChangeCases: of a room that is booked, who may use it and for how long can change.
func reservationChangeCases() []objectCase {
	const room, booked = reservationPath + "room", ": cannot change, for the room is booked on node a: delete the reservation and create it anew"
	return []objectCase{
		{name: "booked, another policy", path: room, change: "spec: {allocatePolicy: Restricted}", refused: []string{"spec.allocatePolicy" + booked}},
		{
			name: "booked, room of running pods", path: room, change: "spec: {preAllocation: true, preAllocationPolicy: {mode: Cluster}}",
			refused: []string{"spec.preAllocation" + booked, "spec.preAllocationPolicy" + booked},
		},
		{
			name: "booked, who and how long", path: room, change: "spec: {ttl: 1h, unschedulable: true, owners: [{object: {name: x}}]}",
			want: "spec: {ttl: 1h, unschedulable: true}",
		},
		{name: "booked, ended", path: room, change: "spec: {expires: '2020-01-01T00:00:00Z'}"},
		{name: "booked, for nobody", path: room, change: "spec: {owners: [{object: {}}]}", refused: []string{"spec.owners[0].object: has neither name nor uid"}},
		{name: "a negative life later", path: reservationPath + "kept", change: "spec: {ttl: -5m}", refused: []string{"spec.ttl: -5m0s is negative"}},
		{name: "another policy before it is booked", path: reservationPath + "kept", change: "spec: {allocatePolicy: Restricted}"},
	}
}
