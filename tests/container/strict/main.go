// Reads Kubernetes manifests from stdin as the API server would with strict validation of fields:
// an unknown field, a field twice or a value of another type is an error, and so is an unknown kind.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func empty(head metav1.TypeMeta) any {
	switch head.APIVersion + "/" + head.Kind {
	case "apps/v1/StatefulSet":
		return &appsv1.StatefulSet{}
	case "v1/Service":
		return &corev1.Service{}
	case "v1/ServiceAccount":
		return &corev1.ServiceAccount{}
	case "v1/ConfigMap":
		return &corev1.ConfigMap{}
	case "networking.k8s.io/v1/NetworkPolicy":
		return &networkingv1.NetworkPolicy{}
	case "policy/v1/PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	}
	return nil
}

func main() {
	reader := yamlreader.NewYAMLReader(bufio.NewReader(os.Stdin))
	failed := false
	for {
		text, err := reader.Read()
		if err == io.EOF {
			break
		}
		var head metav1.TypeMeta
		if err == nil {
			err = yaml.Unmarshal(text, &head)
		}
		if err == nil && head.Kind == "" {
			continue
		}
		if err == nil {
			if object := empty(head); object == nil {
				err = fmt.Errorf("unknown kind")
			} else {
				err = yaml.UnmarshalStrict(text, object)
			}
		}
		if err != nil {
			fmt.Printf("%s %s: %v\n", head.APIVersion, head.Kind, err)
			failed = true
			continue
		}
		fmt.Printf("%s %s\n", head.APIVersion, head.Kind)
	}
	if failed {
		os.Exit(1)
	}
}
