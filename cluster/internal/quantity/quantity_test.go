// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package quantity

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// document is a type with all that quantities stand in.
type document struct {
	Embedded
	CPU      resource.Quantity   `json:"cpu"`
	Pointed  **resource.Quantity `json:"pointed,omitempty"`
	Named    resource.Quantity
	Left     resource.Quantity `json:"-"`
	Lists    []map[string]resource.Quantity
	Inner    *document                                `json:"inner"`
	ByName   map[string]struct{ R resource.Quantity } `json:"byName"`
	Note     string                                   `json:"note"`
	Notes    map[string]string                        `json:"notes"`
	Any      any                                      `json:"any"`
	Time     metav1.Time                              `json:"time"`
	Template corev1.PodTemplateSpec                   `json:"template"`
}

// Embedded is a struct whose fields are the outer one's.
type Embedded struct {
	Memory resource.Quantity `json:"memory"`
	Note   resource.Quantity `json:"note"` // the outer one's stands before it
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const huge = `"1e-99999999"`
	nines := strings.Repeat("9", 65)
	for text, place := range map[string]string{
		`{"cpu":` + huge + `}`:                                 "cpu",
		`{"cpu":"1E-99999999"}`:                                "cpu",
		`{"cpu":"1\u0065-99999999"}`:                           "cpu",
		`{"cpu":" +.5e+99999999 "}`:                            "cpu",
		`{"cpu":"e99999999"}`:                                  "cpu", // a zero that takes as long to compare
		`{"cpu":` + huge + `,"cpu":"1"}`:                       "cpu",
		`{"CPU":` + huge + `}`:                                 "CPU",
		`{"memory":` + huge + `}`:                              "memory",
		`{"pointed":` + huge + `}`:                             "pointed",
		`{"named":` + huge + `}`:                               "named",
		`{"li\u017ft\u017f":[{},{"x":-1e-0001000}]}`:           "liſtſ[1].x",
		`{"inner":{"inner":{"cpu":"-1e1000"}}}`:                "inner.inner.cpu",
		`{"byName":{"a":{"R":"1"},"b":{"r":"` + nines + `"}}}`: "byName.b.r",
		`{"cpu":-` + nines + `}`:                               "cpu",
		`{"cpu":"0.` + strings.Repeat("0", 65) + `1Ki"}`:       "cpu",
		`{"cpu":"` + nines + `e1"}`:                            "cpu",
		`{"template":{"spec":{"containers":[{"resources":{"limits":{"cpu":` + huge + `}}}]}}}`:                         "template.spec.containers[0].resources.limits.cpu",
		`{"template":{"spec":{"volumes":[{"emptyDir":{"sizeLimit":` + huge + `}}]}}}`:                                  "template.spec.volumes[0].emptyDir.sizeLimit",
		`{"template":{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":` + huge + `}}}]}]}}}`: "template.spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor",
		// What Kubernetes takes, and what is no quantity.
		`{"cpu":"1","memory":"2Gi","pointed":"1E-9","named":"2E","lists":[{"a":1e3,"b":"` + nines[1:] + `Ki"}],"inner":null}`: "",
		`{"cpu":"much","memory":"` + nines + `abc"}`: "",
		`{"note":"1e99999999","notes":{"git-sha":"1e23456","dashes":"` + strings.Repeat("-", 65) + `"},"-":"1e99999","left":"1e99999"}`: "",
		`{"any":{"cpu":"1e99999999"},"other":[[{"cpu":"1e99999999"}]],"time":"1e99999999"}`:                                             "",
		`{"cpu":{"cpu":"1e99999999"},"inner":["1e99999999"],"lists":{"a":{"x":"1e99999999"}},"byName":"1e99999999"}`:                    "",
		`{"template":{"metadata":{"labels":{"sha":"9e12345"}},"spec":{"containers":[{"env":[{"name":"SHA","value":"1e23456"}]}]}}}`:     "",
		`{"not json`: "", "[\x01": "", `[A`: "", `{"cpu":b`: "", `{"cpu" 1}`: "", `{"lists":[1 2]}`: "", `{"lists":[}`: "", ``: "", `{1:2}`: "",
	} {
		err := Check([]byte(text), &document{})
		if errors.Is(err, ErrNumber) != (place != "") || err != nil && !strings.HasPrefix(err.Error(), place+": ") {
			t.Errorf("%s: %v, want one about %q", text, err, place)
		}
	}
	if err := Check([]byte(huge), resource.Quantity{}); !errors.Is(err, ErrNumber) {
		t.Errorf("nothing but a quantity: %v", err)
	}
}

// The way to a value is written down only for an error: long keys over many values would cost their product.
func TestCheckIsLinear(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	text := []byte(`{"` + strings.Repeat("k", size) + `":[` + strings.Repeat("{},", size/3) + `{"x":"1e1000"}]}`)
	var err error
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			err = Check(text, map[string][]corev1.ResourceList{})
		}
	})
	if got, most := result.AllocedBytesPerOp(), int64(100*len(text)); got > most {
		t.Errorf("%d bytes allocated for %d, want at most %d", got, len(text), most)
	}
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("%.300v", err)
	}
}

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	var list corev1.ResourceList
	if err := Unmarshal([]byte(`{"cpu":"1e3"}`), &list); err != nil || list.Cpu().Value() != 1000 {
		t.Errorf("%v, %v", list, err)
	}
	if err := Unmarshal([]byte(`{"cpu":"1e-99999999"}`), &list); !errors.Is(err, ErrNumber) {
		t.Errorf("a quantity that nobody can wait for: %v", err)
	}
	if err := Unmarshal([]byte(`{"cpu":"much"}`), &list); err == nil {
		t.Error("no quantity, and no error")
	}
}

// FuzzUnmarshal: whatever is written ends, and nothing else is refused than json.Unmarshal would refuse.
func FuzzUnmarshal(f *testing.F) {
	for _, text := range []string{`{"cpu":"1"}`, `{"cpu":"1e-99999999"}`, `{"cpu":"1e-999"}`, `{"cpu":"e999"}`, `{"cpu":-1E+0999999}`, `{"a":" 1e-9 "}`, `[]`, `null`, "[\x01", `{"a":b`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var list, plain corev1.ResourceList
		err := Unmarshal(data, &list)
		if errors.Is(err, ErrNumber) {
			return
		}
		one := resource.MustParse("1")
		for _, q := range list { // what is done with them must end too
			_, _ = q.Cmp(one), q.String()
		}
		if want := json.Unmarshal(data, &plain); (err == nil) != (want == nil) {
			t.Errorf("%v, json.Unmarshal: %v", err, want)
		}
	})
}
