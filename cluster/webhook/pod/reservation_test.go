// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
)

const roomText = `
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: room}
spec:
  ofTomorrow: kept
  owners: [{labelSelector: {matchLabels: {app: spark}}}]
  template: {metadata: {labels: {app: spark}}, spec: {containers: [{resources: {requests: {cpu: "8"}}}]}}
`

// TestReservation: what a profile gives a pod of the template's labels, or the Reservation's, it gives the Reservation; not with the gate off.
func TestReservation(t *testing.T) {
	t.Parallel()
	const spark = `{metadata: {name: spark}, spec: {selector: {matchLabels: {app: spark}}, qosClass: BE, priorityClassName: koord-batch,
		schedulerName: koord-scheduler, labels: {made: profile}, annotations: {a: b}, patch: {spec: {terminationGracePeriodSeconds: 7}}}}`
	own := strings.NewReplacer("name: room", "name: room, labels: {app: spark}", "{labels: {app: spark}}, spec", "{labels: {app: other}}, spec").Replace(roomText)
	within := strings.Replace(spark, "spec: {", "spec: {namespaceSelector: {matchLabels: {pool: batch}}, ", 1)
	for name, c := range map[string]struct {
		text, profile string
		off           bool
		want          bool
		warning       string
	}{
		"by the template's labels": {roomText, spark, false, true, ""},
		"by its own":               {own, spark, false, true, ""},
		"with a namespace":         {strings.Replace(roomText, "{labels: {app: spark}}, spec", "{namespace: team, labels: {app: spark}}, spec", 1), within, false, true, ""},
		"without one":              {roomText, within, false, false, "the template names none"},
		"not selected":             {strings.ReplaceAll(roomText, "spark", "web"), spark, false, false, ""},
		"opted out":                {strings.Replace(roomText, "name: room", `name: room, labels: {koord-rt.dev/opt-out: "true"}`, 1), spark, false, false, ""},
		"gate off":                 {roomText, spark, true, false, ""},
		"no template":              {roomText[:strings.Index(roomText, "  template")], spark, false, false, ""},
		"an amount to wait for":    {strings.Replace(roomText, `cpu: "8"`, `cpu: "1e-99999999"`, 1), spark, false, false, ""}, // refused when it is validated
		"no reservation":           {"spec: 3", spark, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Options{Reservations: !c.off, KeepRequests: true}, colocation(t, c.profile), priorityClass("koord-batch", 5000),
				namespace(map[string]string{"pool": "batch"}, nil))
			w.mutator.name = reserving
			raw := document(t, c.text)
			req := creation(raw)
			req.Namespace = ""
			resp := (&reserver{w.mutator}).Handle(w.ctx, req)
			if !resp.Allowed || (len(resp.Patches) > 0) != c.want || !strings.Contains(strings.Join(resp.Warnings, " "), c.warning) || len(resp.Warnings) > 0 != (c.warning != "") {
				t.Fatalf("allowed %t, patches %v, warnings %q", resp.Allowed, resp.Patches, resp.Warnings)
			}
			if !c.want {
				return
			}
			raw = answered(t, raw, resp)
			var got schedulingv1alpha1.Reservation
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			s := got.Spec.Template.Spec
			if got.Labels[protocol.LabelQoSClass] != "BE" || got.Labels["made"] != "profile" || got.Annotations["a"] != "b" ||
				got.Annotations[protocol.AnnotationProfiles] != "spark" || s.PriorityClassName != "koord-batch" || *s.Priority != 5000 ||
				s.SchedulerName != "koord-scheduler" || *s.TerminationGracePeriodSeconds != 7 || s.Containers[0].Resources.Requests.Cpu().Value() != 8 ||
				!strings.Contains(string(raw), `"ofTomorrow":"kept"`) {
				t.Errorf("%s", raw)
			}
		})
	}
}
