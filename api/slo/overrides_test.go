// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package slo_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/slo"
)

// entry is one of managedFields, of the given fields of the spec.
func entry(manager, operation, at, spec string) string {
	return fmt.Sprintf(`{"manager":%q,"operation":%q,"apiVersion":"slo.koordinator.sh/v1alpha1","time":%q,"fieldsType":"FieldsV1","fieldsV1":{"f:spec":%s}}`,
		manager, operation, at, spec)
}

// object is a NodeSLO with these entries.
func object(spec string, entries ...string) []byte {
	return []byte(`{"metadata":{"name":"n","uid":"u","generation":3,"managedFields":[` + strings.Join(entries, ",") + `]},"spec":` + spec + `}`)
}

const (
	noon    = "2026-05-01T12:00:00Z"
	evening = "2026-05-01T18:00:00Z"
)

func TestOverrides(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out.UTC()
	}
	const burst = `{"cpuBurstStrategy":{"policy":"auto","cpuBurstPercent":300}}`
	cluster := entry(slo.ClusterManager, "Apply", noon, `{"f:cpuBurstStrategy":{"f:policy":{}}}`)
	for name, c := range map[string]struct {
		object []byte
		want   *slo.Overrides
	}{
		"not told":              {[]byte(`{"metadata":{"name":"n"},"spec":` + burst + `}`), nil},
		"all are the cluster's": {object(burst, entry(slo.ClusterManager, "Apply", noon, `{"f:cpuBurstStrategy":{"f:policy":{},"f:cpuBurstPercent":{}}}`)), &slo.Overrides{}},
		"one is a user's": {object(burst, cluster, entry("kubectl-edit", "Update", evening, `{"f:cpuBurstStrategy":{".":{},"f:cpuBurstPercent":{}}}`)), &slo.Overrides{
			Fields: []slo.Override{{Field: "cpuBurstStrategy.cpuBurstPercent", Value: "300", By: []slo.Owner{{Manager: "kubectl-edit", Time: at(evening)}}}},
		}},
		"what Koordinator's manager updated is not ours": {object(burst, entry(slo.ClusterManager, "Update", noon, `{"f:cpuBurstStrategy":{"f:policy":{}}}`)), &slo.Overrides{
			Fields: []slo.Override{{Field: "cpuBurstStrategy.policy", Value: "auto", By: []slo.Owner{{Manager: slo.ClusterManager, Time: at(noon)}}}},
		}},
		"of two": {object(burst, entry("b", "Update", noon, `{"f:cpuBurstStrategy":{"f:policy":{}}}`), entry("a", "Apply", "soon", `{"f:cpuBurstStrategy":{"f:policy":{}}}`),
			entry("b", "Apply", evening, `{"f:cpuBurstStrategy":{"f:policy":{}}}`)), &slo.Overrides{
			Fields: []slo.Override{{Field: "cpuBurstStrategy.policy", Value: "auto", By: []slo.Owner{{Manager: "a"}, {Manager: "b", Time: at(evening)}}}},
		}},
		"status, labels and fields that the node does not know": {object(burst, cluster,
			strings.Replace(entry("koordlet", "Update", noon, `{"f:cpuBurstStrategy":{"f:policy":{}}}`), `"apiVersion"`, `"subresource":"status","apiVersion"`, 1),
			`{"manager":"labeller","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:x":{}}}}}`,
			entry("newer", "Update", noon, `{"f:wormholes":{"f:policy":{}},"f:cpuBurstStrategy":{"f:warp":{}}}`)), &slo.Overrides{}},
		"lists, extensions, groups and the documents' spelling": {object(`{"hostApplications":[{"name":"a"}],"extensions":{"mine":{"x":1}},"cpuBurstStrategy":{},
			"resourceThresholdStrategy":{"thresholds":{"cpu-suppress-percent":60}},"systemStrategy":{"schedFeatures":{"ID_BOOK_CPU":true},"totalNetworkBandwidth":"10G"}}`,
			entry("argo", "Apply", noon, `{"f:hostApplications":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}},"f:extensions":{"f:mine":{"f:x":{}}},"f:cpuBurstStrategy":{},
				"f:resourceThresholdStrategy":{"f:thresholds":{"f:cpu-suppress-percent":{}}},"f:systemStrategy":{"f:schedFeatures":{"f:ID_BOOK_CPU":{}},"f:totalNetworkBandwidth":{}}}`)),
			&slo.Overrides{Fields: []slo.Override{
				{Field: "cpuBurstStrategy", By: []slo.Owner{{Manager: "argo", Time: at(noon)}}},
				{Field: "extensions.mine", By: []slo.Owner{{Manager: "argo", Time: at(noon)}}},
				{Field: "hostApplications", By: []slo.Owner{{Manager: "argo", Time: at(noon)}}},
				{Field: "resourceThresholdStrategy.thresholds.cpu-suppress-percent", Value: "60", By: []slo.Owner{{Manager: "argo", Time: at(noon)}}},
				{Field: "systemStrategy.schedFeatures.ID_BOOK_CPU", Value: "true", By: []slo.Owner{{Manager: "argo", Time: at(noon)}}},
				{Field: "systemStrategy.totalNetworkBandwidth", Value: "10G", By: []slo.Owner{{Manager: "argo", Time: at(noon)}}},
			}}},
		"a spelling that does not count": {object(`{"resourceUsedThresholdWithBE":{"enable":true},"resourceThresholdStrategy":{"enable":false}}`,
			entry("seed", "Update", noon, `{"f:resourceThresholdStrategy":{"f:enable":{}}}`)), &slo.Overrides{}},
		"another form of fields": {object(burst, cluster, strings.Replace(entry("later", "Update", noon, `{}`), `"FieldsV1"`, `"FieldsV2"`, 1)), nil},
		"no fields":              {object(burst, entry("odd", "Update", noon, `{"f:cpuBurstStrategy":[]}`)), nil},
		"no entries":             {object(burst), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := slo.DecodeNodeSLO(c.object)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got.Overrides); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// However many and however long, a little is kept, and nothing of it moves a cursor.
func TestOverridesAreBounded(t *testing.T) {
	t.Parallel()
	var spec, fields []string
	for i := range 500 {
		spec, fields = append(spec, fmt.Sprintf(`"%03d-%s":{}`, i, strings.Repeat("ä", 200))), append(fields, fmt.Sprintf(`"f:%03d-%s":{}`, i, strings.Repeat("ä", 200)))
	}
	var entries []string
	for i := range 9 {
		entries = append(entries, entry(fmt.Sprintf("%d\x1b[31m\u202e%s", i, strings.Repeat("x", 4000)), "Update", noon, `{"f:extensions":{`+strings.Join(fields, ",")+`}}`))
	}
	for i := range entries {
		entries[i] = strings.ReplaceAll(entries[i], `\x1b`, `\u001b`) // as JSON has it
	}
	got, err := slo.DecodeNodeSLO(object(`{"extensions":{`+strings.Join(spec, ",")+`}}`, entries...))
	if err != nil || got.Overrides == nil {
		t.Fatal(got.Overrides, err)
	}
	o := got.Overrides
	if len(o.Fields) != slo.MaxOverrides || o.LeftOut != 9*(500-slo.MaxOverrides) || len(o.Fields[0].By) != 4 {
		t.Errorf("%d fields, %d left out, %d owners", len(o.Fields), o.LeftOut, len(o.Fields[0].By))
	}
	if !strings.HasPrefix(o.Fields[0].By[0].Manager, "0[31mxx") || !strings.HasSuffix(o.Fields[0].By[0].Manager, "x…") || !strings.HasSuffix(o.Fields[0].Field, "ä…") {
		t.Errorf("%q, %q", o.Fields[0].By[0].Manager, o.Fields[0].Field)
	}
	checkOverrides(t, o)
}

// checkOverrides is what holds whatever the object.
func checkOverrides(t *testing.T, o *slo.Overrides) {
	t.Helper()
	if o == nil {
		return
	}
	if len(o.Fields) > slo.MaxOverrides || o.LeftOut > 0 && len(o.Fields) < slo.MaxOverrides {
		t.Fatalf("%d fields, %d left out", len(o.Fields), o.LeftOut)
	}
	for _, f := range o.Fields {
		if len(f.By) == 0 || len(f.By) > 4 {
			t.Fatalf("%+v", f)
		}
		texts := []string{f.Field, f.Value}
		for _, by := range f.By {
			texts = append(texts, by.Manager)
		}
		for i, s := range texts {
			if len(s) > 160 || s == "" && i != 1 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q", s)
			}
		}
	}
}
