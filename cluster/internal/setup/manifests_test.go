// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/cluster/webhook"
)

const installed = "koordinator-system"

// manifests are the objects of packaging/manifests, read strictly: an unknown field fails the test.
func manifests(t *testing.T) []client.Object {
	t.Helper()
	files, err := filepath.Glob("../../../packaging/manifests/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	var out []client.Object
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var head metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			object := empty(head.Kind)
			if object == nil {
				t.Fatalf("%s: kind %q is not known here", file, head.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
				t.Fatalf("%s: %s: %v", file, head.Kind, err)
			}
			out = append(out, object)
		}
	}
	return out
}

func empty(kind string) client.Object {
	switch kind {
	case "Namespace":
		return &corev1.Namespace{}
	case "ServiceAccount":
		return &corev1.ServiceAccount{}
	case "Service":
		return &corev1.Service{}
	case "Deployment":
		return &appsv1.Deployment{}
	case "PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "PriorityClass":
		return &schedulingv1.PriorityClass{}
	case "ClusterRole":
		return &rbacv1.ClusterRole{}
	case "ClusterRoleBinding":
		return &rbacv1.ClusterRoleBinding{}
	case "Role":
		return &rbacv1.Role{}
	case "RoleBinding":
		return &rbacv1.RoleBinding{}
	case "MutatingWebhookConfiguration":
		return &admissionregistrationv1.MutatingWebhookConfiguration{}
	case "ValidatingWebhookConfiguration":
		return &admissionregistrationv1.ValidatingWebhookConfiguration{}
	case "ValidatingAdmissionPolicy":
		return &admissionregistrationv1.ValidatingAdmissionPolicy{}
	case "ValidatingAdmissionPolicyBinding":
		return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	}
	return nil
}

func pick[T client.Object](all []client.Object) []T {
	var out []T
	for _, o := range all {
		if o, is := o.(T); is {
			out = append(out, o)
		}
	}
	return out
}

// TestDeployment: the Deployment's command line is one that the program takes, and its ports are those that it opens by it.
func TestDeployment(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	d := pick[*appsv1.Deployment](all)
	if len(d) != 1 || d[0].Namespace != installed {
		t.Fatalf("%d Deployments", len(d))
	}
	c := d[0].Spec.Template.Spec.Containers[0]
	o, notes, err := parse(c.Args...)
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	for _, p := range c.Ports {
		if want := map[string]int32{"webhook": int32(o.Webhook.Port), "metrics": 8080, "health": 8000}[p.Name]; p.ContainerPort != want {
			t.Errorf("port %s is %d, want %d", p.Name, p.ContainerPort, want)
		}
	}
	if o.Metrics != ":8080" || o.Health != ":8000" || o.Namespace != installed || o.ConfigNamespace != installed || !o.Elect {
		t.Errorf("%+v", o)
	}
	names := webhook.Default(installed, installed, o.ConfigName, nil).Certs
	s := pick[*corev1.Service](all)
	if len(s) != 1 || s[0].Name != names.Service || s[0].Namespace != installed || s[0].Spec.Ports[0].TargetPort.IntVal != int32(o.Webhook.Port) ||
		s[0].Spec.Selector["koord-app"] != d[0].Spec.Template.Labels["koord-app"] {
		t.Errorf("Service %+v", s)
	}
	m, v := pick[*admissionregistrationv1.MutatingWebhookConfiguration](all), pick[*admissionregistrationv1.ValidatingWebhookConfiguration](all)
	if len(m) != 1 || len(v) != 1 || m[0].Name != names.Mutating || v[0].Name != names.Validating {
		t.Errorf("webhook configurations %v, %v", m, v)
	}
}

// TestRights: no wildcard, no Secret of the cluster, and every binding names a role and an account that are here.
func TestRights(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	accounts := map[string]bool{}
	for _, a := range pick[*corev1.ServiceAccount](all) {
		accounts[a.Name] = a.Namespace == installed
	}
	if len(accounts) != 2 || !accounts["koordlet"] || !accounts[pick[*appsv1.Deployment](all)[0].Spec.Template.Spec.ServiceAccountName] {
		t.Fatalf("accounts %v", accounts)
	}
	roles := map[string][]rbacv1.PolicyRule{}
	for _, r := range pick[*rbacv1.ClusterRole](all) {
		roles["ClusterRole "+r.Name] = r.Rules
	}
	for _, r := range pick[*rbacv1.Role](all) {
		roles["Role "+r.Name] = r.Rules
		if r.Namespace != installed {
			t.Errorf("Role %s is in %q", r.Name, r.Namespace)
		}
	}
	bound := map[string]bool{}
	bind := func(ref rbacv1.RoleRef, to []rbacv1.Subject) {
		bound[ref.Kind+" "+ref.Name] = true
		whose := "koord-manager"
		if ref.Name == "koordlet" {
			whose = ref.Name
		}
		if len(to) != 1 || to[0].Kind != "ServiceAccount" || to[0].Name != whose || !accounts[whose] || to[0].Namespace != installed {
			t.Errorf("%s is bound to %v", ref.Name, to)
		}
	}
	for _, b := range pick[*rbacv1.ClusterRoleBinding](all) {
		bind(b.RoleRef, b.Subjects)
	}
	for _, b := range pick[*rbacv1.RoleBinding](all) {
		bind(b.RoleRef, b.Subjects)
	}
	for name, rules := range roles {
		if !bound[name] {
			t.Errorf("%s is bound to nobody", name)
		}
		delete(bound, name)
		for _, r := range rules {
			for _, part := range slices.Concat(r.APIGroups, r.Resources, r.Verbs) {
				if part == "*" {
					t.Errorf("%s: %v grants a wildcard", name, r)
				}
			}
			named := len(r.ResourceNames) > 0 || slices.Equal(r.Verbs, []string{"create"})
			if slices.Contains(r.Resources, "secrets") && (!strings.HasPrefix(name, "Role ") || !named) {
				t.Errorf("%s: %v: Secrets only by name, in the own namespace", name, r)
			}
			if slices.Contains(r.Resources, "leases") && len(r.ResourceNames) > 0 && !slices.Equal(r.ResourceNames, []string{lease}) &&
				!slices.Equal(r.ResourceNames, []string{leaseOfRecommender}) {
				t.Errorf("%s: %v, want the lease %s or %s", name, r, lease, leaseOfRecommender)
			}
		}
	}
	for name := range bound {
		t.Errorf("%s is bound and not there", name)
	}
}
