// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

const (
	jobPath  = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs/"
	ruledPod = "podRef: {namespace: batch, name: db-a}"
	// passedArbitration lets a job go on.
	passedArbitration = "{descheduler.koordinator.sh/passed-arbitration: 'true'}"
)

// jobRules: what a job may say, what of it may change once it runs, and whose word lets it go on. That of [admitted.jobs] has no phase yet.
func (a *admitted) jobRules(t *testing.T) {
	ctx := t.Context()
	a.user(t, strings.Replace(aJob, "{name: ruled}", "{name: runs}", 1)+
		"{podRef: {namespace: batch, name: db-a, uid: u1}, reservationOptions: {reservationRef: {name: room}}}")
	status := map[string]any{"status": map[string]any{"phase": "Running"}}
	if _, err := a.c.Admin().Patch(ctx, jobPath+"runs/status", cluster.MergePatch, status); err != nil {
		t.Fatal(err)
	}
	users := map[string]*cluster.Client{}
	for _, name := range []string{"koord-scheduler", "koord-descheduler"} {
		user, err := a.c.As("system:serviceaccount:"+system+":"+name, "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		users[name] = user
	}
	a.judges(t, "vpodmigrationjob", slices.Concat(jobCases(), jobChangeCases(), jobTrustCases(users["koord-scheduler"], users["koord-descheduler"])))
}

// jobCases are new ones. That they name a pod, and nothing else, is the definition's to say.
func jobCases() []objectCase {
	job := func(more string) string { return aJob + "{" + ruledPod + ", " + more + "}" }
	room := func(options string) string { return job("reservationOptions: {" + options + "}") }
	labelled := func(policy string) string {
		return strings.Replace(job("ttl: 5m"), "{name: ruled}", "{name: ruled, labels: {koordinator.sh/evict-policy: "+policy+"}}", 1)
	}
	const template = "spec.reservationOptions.template.spec."
	return []objectCase{
		{name: "right", text: job("ttl: 5m, mode: ReservationFirst, deleteOptions: {gracePeriodSeconds: 0}")},
		{name: "a negative life", text: job("ttl: -1s"), refused: []string{"spec.ttl: -1s is negative: give a duration as 5m"}},
		{name: "a negative grace", text: job("deleteOptions: {gracePeriodSeconds: -1}"), refused: []string{"spec.deleteOptions.gracePeriodSeconds: -1 is negative"}},
		{name: "no such way to end", text: labelled("Kill"), refused: []string{`label koordinator.sh/evict-policy: "Kill", want Eviction, Delete or SoftEviction`}},
		{name: "a way to end", text: labelled("SoftEviction")},
		{
			name: "a room without a name", text: room("reservationRef: {}"),
			refused: []string{"spec.reservationOptions.reservationRef.name: missing: name the reservation, or leave reservationRef out and one is made"},
		},
		{name: "a negative life of the room", text: room("template: {spec: {ttl: -1s}}"), refused: []string{template + "ttl: -1s is negative"}},
		{name: "an owner without a name", text: room("template: {spec: {owners: [{object: {}}]}}"), refused: []string{template + "owners.object: has neither name nor uid"}},
		{
			name: "a room above its limit", text: room("template: {spec: {template: {spec: {containers: [{resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}}}}"),
			refused: []string{template + "template.spec.containers[0].resources: cpu asks for 2, above its limit 1"},
		},
		{name: "what a template leaves out", text: room("template: {spec: {owners: [{}], template: {spec: {}}}}")},
		{
			name: "a room that is not used", text: job("mode: EvictDirectly, reservationOptions: {reservationRef: {name: room}}"),
			warned: []string{"spec.reservationOptions: does nothing with mode EvictDirectly"},
		},
		{
			name: "a template that is not used", text: room("reservationRef: {name: room}, template: {spec: {}}"),
			warned: []string{"spec.reservationOptions.template: does nothing beside reservationRef, which is there already"},
		},
	}
}

// jobChangeCases: a job that runs goes the way on which it is.
func jobChangeCases() []objectCase {
	const runs, move = jobPath + "runs", jobPath + "move"
	const room = "spec.reservationOptions.reservationRef: cannot change from room once the job is Running: create another job"
	return []objectCase{
		{name: "another mode", path: runs, change: "spec: {mode: ReservationFirst}", refused: []string{"spec.mode: cannot change once the job is Running: create another job"}},
		{name: "another room", path: runs, change: "spec: {reservationOptions: {reservationRef: {name: kept}}}", refused: []string{room}},
		{name: "no room", path: runs, change: "spec: {reservationOptions: null}", refused: []string{room}},
		{name: "another pod of the name", path: runs, change: "spec: {podRef: {uid: u2}}", refused: []string{"spec.podRef: cannot change: a job moves one pod; create another job"}},
		{name: "any pod of the name", path: runs, change: "spec: {podRef: {uid: null}}", refused: []string{"spec.podRef: cannot change"}},
		{name: "a negative life later", path: runs, change: "spec: {ttl: -1s}", refused: []string{"spec.ttl: -1s is negative"}},
		{name: "held", path: runs, change: "spec: {paused: true}", want: "spec: {paused: true}"},
		{name: "another mode before it runs", path: move, change: "spec: {mode: EvictDirectly}", want: "spec: {mode: EvictDirectly}"},
		{name: "a room before it runs", path: move, change: "spec: {reservationOptions: {reservationRef: {name: room}}}"},
		{name: "the pod's uid comes", path: move, change: "spec: {podRef: {uid: u1}}", want: "spec: {podRef: {uid: u1}}"},
	}
}

// jobTrustCases: jobs go on by the descheduler's word, which a scheduler has not; on which CPUs and devices the room of one is nobody says
// but a scheduler, and the descheduler, which copies a pod there.
func jobTrustCases(scheduler, descheduler *cluster.Client) []objectCase {
	const others = "annotation descheduler.koordinator.sh/passed-arbitration: only the descheduler may set it: leave it out, and the job waits for its turn"
	made := strings.Replace(aJob, "{name: ruled}", "{name: ruled, annotations: "+passedArbitration+"}", 1) + "{" + ruledPod + "}"
	const change = "metadata: {annotations: " + passedArbitration + "}"
	const set, at = ": only the scheduler may set or change it: leave it out", "spec.reservationOptions.template."
	const cpus = `metadata: {annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset":"0-3"}'}}`
	room := func(template string) string {
		return "{" + ruledPod + ", reservationOptions: {template: {" + template + "}}}"
	}
	const devices = "spec: {template: " + deviceTemplate + "}"
	return []objectCase{
		{name: "made to go on", text: made, refused: []string{others}},
		{name: "made to go on by the scheduler", text: made, by: scheduler, refused: []string{others}},
		{name: "made to go on by the descheduler", text: made, by: descheduler, want: change},
		{name: "told to go on", path: jobPath + "move", change: change, refused: []string{others}},
		{name: "told to go on by the descheduler", path: jobPath + "move", change: change, by: descheduler, want: change},
		{name: "CPUs of the room", text: aJob + room(cpus), refused: []string{at + "metadata: annotation scheduling.koordinator.sh/resource-status" + set}},
		{
			name: "devices of the room's pod", text: aJob + room(devices),
			refused: []string{at + "spec.template.metadata: annotation scheduling.koordinator.sh/device-allocated" + set},
		},
		{name: "devices of the room's pod by the descheduler", text: aJob + room(devices), by: descheduler, want: "spec: " + room(devices)},
		{name: "devices of the room's pod by the scheduler", text: aJob + room(devices), by: scheduler, want: "spec: " + room(devices)},
		{
			name: "CPUs of the room later", path: jobPath + "move", change: "spec: " + room(cpus),
			refused: []string{at + "metadata: annotation scheduling.koordinator.sh/resource-status" + set},
		},
	}
}
