// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	analysisv1alpha1 "github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	configv1alpha1 "github.com/koord-rt/koord-rt/api/config/v1alpha1"
	koordinatorv1alpha1 "github.com/koord-rt/koord-rt/api/koordinator/v1alpha1"
	quotav1alpha1 "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
)

// Scheme has the kinds that the manager reads and writes, and no others: client-go's own scheme has hundreds.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, schedulingv1.AddToScheme, admissionregistrationv1.AddToScheme,
		analysisv1alpha1.AddToScheme, configv1alpha1.AddToScheme, schedulingv1alpha1.AddToScheme, slov1alpha1.AddToScheme, topologyv1alpha1.AddToScheme,
		sigsv1alpha1.AddToScheme, koordinatorv1alpha1.AddToScheme, quotav1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("make the scheme: %w", err)
		}
	}
	return s, nil
}
