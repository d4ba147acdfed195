// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzPatch: an administrator's patch of any shape makes a pod of the same name or an error that tells nothing of the pod.
func FuzzPatch(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{"terminationGracePeriodSeconds":30}}`, `{"spec":{"containers":[{"name":"app","env":[{"name":"A","value":5}]}]}}`,
		`{"spec":{"containers":[{"$patch":"delete","name":"app"}]}}`, `{"$patch":"replace"}`, `{"spec":null}`, `{"spec":{"containers":null}}`, `{"spec":{"containers":[{"$patch":"replace"}]}}`, `{"$retainKeys":["spec"]}`, `null`, `[]`, `{`,
		`{"metadata":{"labels":null,"name":"b"}}`, `{"spec":{"containers":7}}`, `{"spec":{"$setElementOrder/containers":[{"name":"x"}]}}`,
		`{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"x"}}}]}}`,
		`{"spec":{"containers":[{"name":{}},{"name":{}}]}}`, `{"metadata":{"$setElementOrder/finalizers":[{}],"finalizers":[{}]}}`,
	} {
		f.Add(seed)
	}
	const secret = "correct-horse-battery-staple"
	f.Fuzz(func(t *testing.T, patch string) {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{Name: "A", Value: secret}}}}}}
		p.Name, p.Namespace = "a", team
		out, err := patched(p, []byte(patch))
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q: the error tells the environment: %v", patch, err)
			}
			return
		}
		if len(out.Spec.Containers) == 0 {
			t.Errorf("%q: no containers are left", patch)
		}
		if out.Name != "a" || out.Namespace != team {
			t.Errorf("%q: moved to %s/%s", patch, out.Namespace, out.Name)
		}
		read(out)
	})
}

// What the library panics of is a patch that does not fit, and one that it would compute for seconds is none at all.
func TestPatchRefused(t *testing.T) {
	t.Parallel()
	const none = "no strategic merge patch"
	many := `{"spec":{"containers":[` + strings.Repeat(`{"name":"a"},`, maxPatch/10) + `{"name":"b"}]}}`
	for patch, want := range map[string]string{
		`{"spec":{"containers":[{"name":{}},{"name":{}}]}}`:                   none,
		`{"spec":{"containers":[{"name":[]},{"name":[]}]}}`:                   none,
		`{"metadata":{"$setElementOrder/finalizers":[{}],"finalizers":[{}]}}`: none,
		many: "bytes, at most 65536",
		`{"metadata":{"labels":{"a":"b"}}}` + strings.Repeat(" ", maxPatch-33):        "",
		`{"metadata":{"labels":{"a":"b"}}}` + strings.Repeat(" ", maxPatch-33) + "\n": "bytes, at most",
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
		out, err := patched(p, []byte(patch))
		if (err == nil) != (want == "") || (out == nil) != (err != nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want %q", patch, err, want)
		}
	}
}
