// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod

import (
	"strconv"
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

// A small patch of a pod that has very many entries would be computed for minutes; what people have is merged.
func TestPatchOfManyEntries(t *testing.T) {
	t.Parallel()
	named := func(n int) (out []corev1.Container) {
		for i := range n {
			out = append(out, corev1.Container{Name: "c" + strconv.Itoa(i)})
		}
		return out
	}
	const patch = `{"spec":{"containers":[{"name":"c0","image":"x"}]}}`
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"usual":              {corev1.PodSpec{Containers: named(50)}, ""},
		"a long list":        {corev1.PodSpec{Containers: named(40_000)}, "the longest 40000"},
		"a long list of one": {corev1.PodSpec{Containers: []corev1.Container{{Name: "c0", Env: make([]corev1.EnvVar, maxList+1)}}}, "the longest 1001"},
		"many lists": {corev1.PodSpec{
			Containers: named(1000), InitContainers: named(1000), Volumes: make([]corev1.Volume, 1000),
			Tolerations: make([]corev1.Toleration, 1000), ImagePullSecrets: make([]corev1.LocalObjectReference, 1000),
			HostAliases: make([]corev1.HostAlias, 1000), SchedulingGates: make([]corev1.PodSchedulingGate, 1000),
			ResourceClaims: make([]corev1.PodResourceClaim, 1000), TopologySpreadConstraints: make([]corev1.TopologySpreadConstraint, 1),
		}, "8001 entries"},
	} {
		out, err := patched(&corev1.Pod{Spec: tc.spec}, []byte(patch))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || err == nil && out.Spec.Containers[0].Image != "x" {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
