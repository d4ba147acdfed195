// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reservation

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/quantity"
	"github.com/koord-rt/koord-rt/cluster/webhook/answer"
)

const (
	scheduler   = "system:serviceaccount:koordinator-system:koord-scheduler"
	descheduler = "system:serviceaccount:koordinator-system:koord-descheduler"
)

func noon() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

func handlers(t testing.TB) (reservations, migrations admission.Handler) {
	t.Helper()
	a, err := answer.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Schedulers: []string{scheduler}, Deschedulers: []string{descheduler}}
	return a.Guard(validating, &validator{options: o, answers: a, now: noon}), a.Guard(jobs, &jobValidator{options: o, answers: a})
}

// ask sends an object, and at an update what it was, in YAML.
func ask(t testing.TB, h admission.Handler, user, now, was string) admission.Response {
	t.Helper()
	raw := func(text string) runtime.RawExtension {
		out, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: out}
	}
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: raw(now)}}
	if was != "" {
		req.Operation, req.OldObject = admissionv1.Update, raw(was)
	}
	req.UserInfo.Username = user
	return h.Handle(t.Context(), req)
}

// says checks a refusal by its parts, and warnings.
func says(t *testing.T, got admission.Response, want, warned []string) {
	t.Helper()
	if got.Allowed != (want == nil) {
		t.Errorf("allowed %t: %s", got.Allowed, got.Result.Message)
	}
	for _, part := range want {
		if !strings.Contains(got.Result.Message, part) {
			t.Errorf("%q does not say %q", got.Result.Message, part)
		}
	}
	if len(got.Warnings) != len(warned) {
		t.Fatalf("warnings %q, want %d", got.Warnings, len(warned))
	}
	for i, part := range warned {
		if !strings.Contains(got.Warnings[i], part) {
			t.Errorf("%q does not say %q", got.Warnings[i], part)
		}
	}
}

// with is a reservation that is right, with another text for one of its fields, or more.
func with(fields ...string) string {
	spec := map[string]string{
		"template": "{spec: {containers: [{resources: {requests: {cpu: 8, memory: 16Gi}, limits: {cpu: 8, memory: 16Gi}}}]}}",
		"owners":   "[{labelSelector: {matchLabels: {app: spark}}}]", "ttl": "10m",
	}
	meta, status := "", ""
	for i := 0; i < len(fields); i += 2 {
		switch fields[i] {
		case "annotations", "labels", "deletionTimestamp":
			meta += ", " + fields[i] + ": " + fields[i+1]
		case "status":
			status = "status: " + fields[i+1] + "\n"
		default:
			spec[fields[i]] = fields[i+1]
		}
	}
	out := "metadata: {name: r" + meta + "}\n" + status + "spec:\n"
	for name, value := range spec {
		if value != "" {
			out += "  " + name + ": " + value + "\n"
		}
	}
	return out
}

func TestReservation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now            string
		want, warnings []string
	}{
		"right":                      {with(), nil, nil},
		"no owners":                  {with("owners", "[]"), []string{"spec.owners: none"}, nil},
		"an owner that says nothing": {with("owners", "[{}]"), nil, []string{"spec.owners[0]: says nothing, so every pod"}},
		"owners by a wrong selector": {
			with("owners", "[{labelSelector: {matchExpressions: [{key: a, operator: Is}]}}]"), []string{"spec.owners[0].labelSelector"}, nil,
		},
		"an owner without a name":       {with("owners", "[{object: {namespace: a}}]"), []string{"spec.owners[0].object: has neither name nor uid"}, nil},
		"an owner of another kind":      {with("owners", "[{object: {kind: Job, name: a}}]"), []string{"object.kind: Job, want Pod"}, nil},
		"a controller without a name":   {with("owners", "[{controller: {kind: Job}}]"), []string{"say which Job it is"}, nil},
		"no template":                   {with("template", ""), []string{"spec.template: missing"}, nil},
		"a template that asks nothing":  {with("template", "{spec: {containers: [{name: a}]}}"), nil, []string{"asks for nothing"}},
		"a template with pod resources": {with("template", "{spec: {containers: [{name: a}], resources: {requests: {cpu: 1}}}}"), nil, nil},
		"a template that is no pod's":   {with("template", "{spec: {containers: 3}}"), []string{"cannot be decoded", "templates as those of pods"}, nil},
		"an amount to wait for":         {with("template", `{spec: {containers: [{resources: {requests: {cpu: "1e-99999999"}}}]}}`), []string{"cannot be decoded: ", "more digits"}, nil},
		"an amount that is none":        {with("template", "{spec: {containers: [{resources: {requests: {cpu: much}}}]}}"), []string{"cannot be decoded"}, nil},
		"a negative amount":             {with("template", "{spec: {containers: [{resources: {requests: {cpu: -1}}}]}}"), []string{"spec.template.spec.containers[0].resources.requests: cpu is -1"}, nil},
		"above its limit":               {with("template", "{spec: {containers: [{resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}}"), []string{"cpu asks for 2, above its limit 1"}, nil},
		"for ever":                      {with("ttl", "0s"), nil, nil},
		"for ever, and until":           {with("ttl", "0s", "expires", `"2030-01-01T00:00:00Z"`), nil, []string{"expires does nothing"}},
		"until":                         {with("ttl", "", "expires", `"2026-11-22T12:00:01Z"`), nil, nil},
		"until now":                     {with("expires", `"2026-11-22T12:00:00Z"`), []string{"spec.expires: 2026-11-22T12:00:00Z is past"}, nil},
		"neither":                       {with("ttl", ""), []string{"neither ttl nor expires"}, nil},
		"negative":                      {with("ttl", "-5m"), []string{"spec.ttl: -5m0s is negative"}, nil},
		"a policy for nothing":          {with("preAllocationPolicy", "{mode: Default}"), nil, []string{"does nothing without preAllocation"}},
		"taints":                        {with("taints", "[{key: a, effect: NoSchedule}, {effect: Never}]"), []string{`spec.taints[1].effect: "Never"`, "spec.taints[1].key: missing"}, nil},
		"two mistakes, both told":       {with("owners", "[]", "ttl", "-5m"), []string{"spec.owners", "spec.ttl"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := handlers(t)
			says(t, ask(t, r, "user", c.now, ""), c.want, c.warnings)
		})
	}
}

func TestReservationChange(t *testing.T) {
	t.Parallel()
	const placed = "{nodeName: node-1, phase: Available}"
	const other = "{spec: {containers: [{resources: {requests: {cpu: 9}}}]}}"
	for name, c := range map[string]struct {
		now, was       string
		want, warnings []string
	}{
		"nothing":                       {with("status", placed), with("status", placed), nil, nil},
		"the template, before":          {with("template", other), with(), nil, nil},
		"the template, placed":          {with("template", other, "status", placed), with("status", placed), []string{"spec.template: cannot change", "node-1"}, nil},
		"the same amounts, other words": {with("status", placed), with("status", placed, "template", "{spec: {containers: [{resources: {requests: {cpu: '8000m', memory: 16384Mi}, limits: {cpu: 8, memory: 16Gi}}}]}}"), nil, nil},
		"how, placed":                   {with("status", placed, "allocatePolicy", "Restricted", "preAllocation", "true"), with("status", placed), []string{"spec.allocatePolicy", "spec.preAllocation: cannot"}, nil},
		"who and how long, placed":      {with("status", placed, "ttl", "1h", "owners", "[{object: {name: a}}]", "unschedulable", "true"), with("status", placed), nil, nil},
		"nobody, placed":                {with("status", placed, "owners", "[]"), with("status", placed), []string{"spec.owners"}, nil},
		"wrong before":                  {with("owners", "[]", "ttl", "1h"), with("owners", "[]"), nil, nil},
		"an end that is past":           {with("expires", `"2020-01-01T00:00:00Z"`), with(), nil, nil}, // ends it
		"unreadable before, corrected":  {with(), with("template", "3"), nil, nil},
		"unreadable still, a label":     {with("template", "3", "labels", "{a: b}"), with("template", "3"), nil, []string{"write its template"}},
		"unreadable still, going":       {with("template", "3", "ttl", "1h", "deletionTimestamp", `"2026-01-01T00:00:00Z"`), with("template", "3"), nil, []string{"write its template"}},
		"unreadable still, changed":     {with("template", "3", "ttl", "1h"), with("template", "3"), []string{"cannot be decoded"}, nil},
		"unreadable before, and wrong":  {with("owners", "[]"), with("template", "3", "owners", "[]"), []string{"spec.owners"}, nil},
		"a label that looks long":       {with("labels", "{git-sha: 1e23456}", "owners", "[]"), with("labels", "{git-sha: 1e23456}"), []string{"spec.owners"}, nil},
		"unreadable now":                {with("template", "3"), with(), []string{"cannot be decoded"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := handlers(t)
			says(t, ask(t, r, "user", c.now, c.was), c.want, c.warnings)
		})
	}
}

// Of several labels that are wrong always the same one is named: what stays wrong would be refused anew by another sentence.
func TestWrongLabelsStay(t *testing.T) {
	t.Parallel()
	owners := []schedulingv1alpha1.ReservationOwner{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "x", "_": "y", "+": "z", "a": "!"}}}}
	r := &schedulingv1alpha1.Reservation{Spec: schedulingv1alpha1.ReservationSpec{Owners: owners}}
	j := &schedulingv1alpha1.PodMigrationJob{Spec: schedulingv1alpha1.PodMigrationJobSpec{
		ReservationOptions: &schedulingv1alpha1.PodMigrateReservationOptions{Template: &schedulingv1alpha1.ReservationTemplateSpec{Spec: r.Spec}},
	}}
	if refused, _ := CheckNew(r, noon()); !strings.Contains(strings.Join(refused, "; "), `labelSelector: key: Invalid value: "+"`) {
		t.Errorf("refused %q", refused)
	}
	for range 50 {
		if refused, _ := CheckChange(r, r); len(refused) > 0 {
			t.Fatalf("no change is refused: %q", refused)
		}
		if refused, _ := CheckJobChange(j, j); len(refused) > 0 {
			t.Fatalf("no change of a job is refused: %q", refused)
		}
	}
}

// TestTrust: where the room is only schedulers say, on the object and in its template.
func TestTrust(t *testing.T) {
	t.Parallel()
	const cpus, devices = `{scheduling.koordinator.sh/resource-status: '{"cpuset":"0-3"}'}`, `{scheduling.koordinator.sh/device-allocated: '{}'}`
	template := "{metadata: {annotations: " + devices + "}, spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"
	r, j := handlers(t)
	for name, c := range map[string]struct{ now, was, says string }{
		"made with CPUs":                                {with("annotations", cpus), "", "metadata: annotation scheduling.koordinator.sh/resource-status: only the scheduler"},
		"given CPUs":                                    {with("annotations", cpus), with(), "only the scheduler"},
		"CPUs taken away":                               {with(), with("annotations", cpus), "may remove it"},
		"a template's devices":                          {with("template", template), "", "spec.template.metadata: annotation scheduling.koordinator.sh/device-allocated"},
		"CPUs that were there":                          {with("annotations", cpus, "ttl", "1h"), with("annotations", cpus), ""},
		"an annotation of ours":                         {with("annotations", "{a: b}"), "", ""},
		"CPUs, unreadable":                              {with("annotations", cpus), with("template", "3"), "only the scheduler"},
		"CPUs, unreadable still":                        {with("annotations", cpus, "template", "3"), with("template", "3"), "only the scheduler"},
		"CPUs that were there with what was unreadable": {with("annotations", cpus), with("annotations", cpus, "template", "3"), ""},
	} {
		if got := ask(t, r, "user", c.now, c.was); got.Allowed != (c.says == "") || !strings.Contains(got.Result.Message, c.says) {
			t.Errorf("%s: allowed %t: %s", name, got.Allowed, got.Result.Message)
		}
		if got := ask(t, r, scheduler, c.now, c.was); !got.Allowed {
			t.Errorf("%s, by the scheduler: %s", name, got.Result.Message)
		}
	}
	passed := "metadata: {name: j, annotations: {descheduler.koordinator.sh/passed-arbitration: 'true'}}\nspec: {podRef: {namespace: a, name: b}}"
	if got := ask(t, j, "user", passed, ""); got.Allowed || !strings.Contains(got.Result.Message, "only the descheduler") {
		t.Errorf("%+v", got.Result)
	}
	for _, got := range []admission.Response{ask(t, j, descheduler, passed, ""), ask(t, j, "user", passed, passed)} {
		if !got.Allowed {
			t.Errorf("%+v", got.Result)
		}
	}
}

// TestRoomTrust: a job's room is as little for anybody to say as a Reservation is, in both places of its template; who copies a pod there is
// believed, as the scheduler is.
func TestRoomTrust(t *testing.T) {
	t.Parallel()
	const cpus, devices = `{scheduling.koordinator.sh/resource-status: '{"cpuset":"0-3"}'}`, `{scheduling.koordinator.sh/device-allocated: '{}'}`
	const at = "spec.reservationOptions.template."
	job := func(options string) string {
		return "metadata: {name: j}\nspec: {podRef: {namespace: a, name: b}" + options + "}"
	}
	room := func(template string) string { return job(", reservationOptions: {template: {" + template + "}}") }
	outer, inner := room("metadata: {annotations: "+cpus+"}"), room("spec: {template: {metadata: {annotations: "+devices+"}}}")
	_, j := handlers(t)
	for name, c := range map[string]struct{ now, was, says string }{
		"made with CPUs":               {outer, "", at + "metadata: annotation scheduling.koordinator.sh/resource-status: only the scheduler may set or change it"},
		"made with devices":            {inner, "", at + "spec.template.metadata: annotation scheduling.koordinator.sh/device-allocated: only the scheduler may set"},
		"given CPUs":                   {outer, room("spec: {}"), at + "metadata: annotation"},
		"given CPUs with the room":     {outer, job(""), at + "metadata: annotation"},
		"given devices":                {inner, room("spec: {}"), at + "spec.template.metadata: annotation"},
		"other CPUs":                   {strings.Replace(outer, "0-3", "4-7", 1), outer, "only the scheduler may set or change it"},
		"CPUs taken away":              {job(""), outer, "may remove it: keep it"},
		"beside a room that is there":  {strings.Replace(outer, "{template", "{reservationRef: {name: r}, template", 1), "", at + "metadata: annotation"},
		"with what was unreadable":     {outer, job(", reservationOptions: {template: 3}"), at + "metadata: annotation"},
		"what was there":               {strings.Replace(outer, "spec: {", "spec: {paused: true, ", 1), outer, ""},
		"somebody else's word":         {room("metadata: {annotations: {a: b}}, spec: {template: {metadata: {annotations: {a: b}}}}"), "", ""},
		"no template, and none before": {job(", reservationOptions: {}"), job(""), ""},
	} {
		if got := ask(t, j, "user", c.now, c.was); got.Allowed != (c.says == "") || !strings.Contains(got.Result.Message, c.says) {
			t.Errorf("%s: allowed %t: %s", name, got.Allowed, got.Result.Message)
		}
		for _, user := range []string{scheduler, descheduler} {
			if got := ask(t, j, user, c.now, c.was); !got.Allowed {
				t.Errorf("%s, by %s: %s", name, user, got.Result.Message)
			}
		}
	}
}

func TestJob(t *testing.T) {
	t.Parallel()
	job := func(spec string) string { return "metadata: {name: j}\nspec: " + spec }
	const ref = "podRef: {namespace: default, name: web-0}"
	for name, c := range map[string]struct {
		now            string
		want, warnings []string
	}{
		"right":              {job("{" + ref + ", ttl: 5m, mode: ReservationFirst}"), nil, nil},
		"no pod":             {job("{}"), []string{"spec.podRef: missing"}, nil},
		"no name":            {job("{podRef: {namespace: a}}"), []string{`name "" in namespace "a": give both`}, nil},
		"no namespace":       {job("{podRef: {name: a}}"), []string{`name "a" in namespace ""`}, nil},
		"another kind":       {job("{podRef: {kind: Deployment, namespace: a, name: a}}"), []string{"Deployment, want Pod"}, nil},
		"negative":           {job("{" + ref + ", ttl: -1s}"), []string{"spec.ttl: -1s is negative"}, nil},
		"negative grace":     {job("{" + ref + ", deleteOptions: {gracePeriodSeconds: -1}}"), []string{"gracePeriodSeconds: -1"}, nil},
		"unnamed room":       {job("{" + ref + ", reservationOptions: {reservationRef: {}}}"), []string{"reservationRef.name: missing"}, nil},
		"room and template":  {job("{" + ref + ", reservationOptions: {reservationRef: {name: r}, template: {spec: {}}}}"), nil, []string{"does nothing beside reservationRef"}},
		"room without use":   {job("{" + ref + ", mode: EvictDirectly, reservationOptions: {reservationRef: {name: r}}}"), nil, []string{"mode EvictDirectly"}},
		"a wrong template":   {job("{" + ref + ", reservationOptions: {template: {spec: {ttl: -1s, owners: [{object: {}}]}}}}"), []string{"template.spec.owners.object", "template.spec.ttl"}, nil},
		"a template's rest":  {job("{" + ref + ", reservationOptions: {template: {spec: {owners: [{}], template: {spec: {}}}}}}"), nil, nil},
		"a wrong way to end": {strings.Replace(job("{"+ref+"}"), "name: j", "name: j, labels: {koordinator.sh/evict-policy: Kill}", 1), []string{`"Kill", want Eviction, Delete or SoftEviction`}, nil},
		"no template at all": {job("{" + ref + ", reservationOptions: {template: 3}}"), []string{"cannot be decoded"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, j := handlers(t)
			says(t, ask(t, j, "user", c.now, ""), c.want, c.warnings)
		})
	}
}

func TestJobChange(t *testing.T) {
	t.Parallel()
	job := func(phase, spec string) string {
		return "metadata: {name: j}\nstatus: {phase: '" + phase + "'}\nspec: {podRef: {namespace: a, name: b}" + spec + "}"
	}
	uid := func(s, uid string) string { return strings.Replace(s, "name: b", "name: b, uid: "+uid, 1) }
	for name, c := range map[string]struct {
		now, was string
		want     []string
	}{
		"held":                     {job("Running", ", paused: true"), job("Running", ""), nil},
		"another pod":              {strings.Replace(job("", ""), "name: b", "name: c", 1), job("", ""), []string{"spec.podRef: cannot change"}},
		"the uid comes":            {uid(job("Running", ""), "u1"), job("Running", ""), nil},
		"the uid changes":          {uid(job("Running", ""), "u2"), uid(job("Running", ""), "u1"), []string{"spec.podRef"}},
		"the uid goes":             {job("Running", ""), uid(job("Running", ""), "u1"), []string{"spec.podRef"}},
		"the mode, before":         {job("Pending", ", mode: EvictDirectly"), job("Pending", ""), nil},
		"the mode, on the way":     {job("Running", ", mode: EvictDirectly"), job("Running", ""), []string{"spec.mode: cannot change once the job is Running"}},
		"the room comes":           {job("Running", ", reservationOptions: {reservationRef: {name: r}}"), job("Running", ""), nil},
		"the room, on the way":     {job("Running", ", reservationOptions: {reservationRef: {name: s}}"), job("Running", ", reservationOptions: {reservationRef: {name: r}}"), []string{"cannot change from r"}},
		"wrong before, left alone": {job("Running", ", ttl: -1s, paused: true"), job("Running", ", ttl: -1s"), nil},
		"wrong now":                {job("Running", ", ttl: -1s"), job("Running", ""), []string{"spec.ttl"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, j := handlers(t)
			says(t, ask(t, j, "user", c.now, c.was), c.want, nil)
		})
	}
}

// TestManifests: the documents' reservations and upstream's samples are taken.
func TestManifests(t *testing.T) {
	t.Parallel()
	const lab = "../../../test/lab/cluster/testdata/"
	r, j := handlers(t)
	seen := 0
	for _, file := range []string{"manifests/m08-reservation-spark.yaml", "manifests/m09-reservation-flink.yaml", "upstream/reservation.yaml", "upstream/scheduling.yaml"} {
		text, err := os.ReadFile(lab + file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var head struct{ Kind string }
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatal(err)
			}
			h := map[string]admission.Handler{"Reservation": r, "PodMigrationJob": j}[head.Kind]
			if h == nil {
				continue
			}
			seen++
			if !strings.Contains(doc, "ttl:") {
				doc = strings.Replace(doc, "\nspec:", "\nspec:\n  ttl: 24h", 1) // the definition's default
			}
			if got := ask(t, h, "user", doc, ""); !got.Allowed {
				t.Errorf("%s: %s", file, got.Result.Message)
			}
		}
	}
	if seen != 6 {
		t.Errorf("%d objects", seen)
	}
}

// FuzzReservation: whatever an object says, there is an answer, and one that was taken may stay as it is.
func FuzzReservation(f *testing.F) {
	f.Add(`{"spec":{"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}},"owners":[{}],"ttl":"1h"}}`)
	f.Add(`{"spec":{"podRef":{"namespace":"a","name":"b"},"reservationOptions":{"template":{"spec":{"owners":[{"object":null}]}}}}}`)
	f.Add(`{"spec":{"expires":"2026-01-01T00:00:00Z","taints":[{}]},"status":{"nodeName":"n"}}`)
	f.Add(`{"spec":{"owners":[{"labelSelector":{"matchLabels":{"-":"x","_":"y","+":"z"}}}]}}`)
	f.Add(`{"spec":{"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"1e-9999999"}}}]}}}}`) // decoded as admission does it
	f.Add(`{"spec":{"template":{"spec":{"conatiners":[{"imge":1}],"x.y[":2}},"ownrs":3}}`)
	a, err := answer.New(prometheus.NewRegistry())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var r schedulingv1alpha1.Reservation
		if quantity.Unmarshal([]byte(text), &r) == nil {
			if refused, _ := CheckChange(&r, &r); len(refused) > 0 {
				t.Errorf("no change is refused: %q", refused)
			}
			_, _ = CheckNew(&r, noon())
			stays := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(text)}}}
			_, _ = spelling[schedulingv1alpha1.ReservationSpec](&stays, fresh)
			stays.OldObject = stays.Object
			if refused, _ := spelling[schedulingv1alpha1.ReservationSpec](&stays, changed); len(refused) > 0 {
				t.Errorf("no change is refused: %q", refused)
			}
		}
		for _, op := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
			raw := runtime.RawExtension{Raw: []byte(text)}
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: op, Object: raw, OldObject: raw}}
			now, was, _, instead := decode[schedulingv1alpha1.Reservation](a, "fuzz", &req)
			if (instead == nil) == (now == nil || was == nil) || instead != nil && instead.Allowed {
				t.Errorf("%s: %+v after %+v, answered %+v", op, now, was, instead)
			}
		}
		var j schedulingv1alpha1.PodMigrationJob
		if quantity.Unmarshal([]byte(text), &j) == nil {
			if refused, _ := CheckJobChange(&j, &j); len(refused) > 0 {
				t.Errorf("no change is refused: %q", refused)
			}
			_, _ = CheckNewJob(&j)
		}
	})
}
