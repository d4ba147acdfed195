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
